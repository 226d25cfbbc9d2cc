// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.FinalMocks.mockFinal;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.LaneDescription.DeviceDescription;
import io.fluxccl.collective.PeerConnections.TransportChoice;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.mockito.Mockito;

class TransportChoiceTest {
  private static final TransportChoice CHOICE = TransportChoice.of(CollectivesOptions.DEFAULT);

  /** The hosts and networks of the ranks of a job. */
  private static final class Job {
    final Bootstrap bootstrap = Mockito.mock(Bootstrap.class);
    final List<DeviceDescription> devices = new ArrayList<>();

    Job on(int host, String networks) {
      Mockito.when(bootstrap.hostHash(devices.size())).thenReturn((long) host);
      TransportFlags flags =
          networks.isEmpty() ? TransportFlags.NONE : TransportFlags.parse(networks);
      devices.add(new DeviceDescription(DeviceKind.HOST, 0, 0, flags, "", List.of(), ""));
      return this;
    }

    Transport between(int a, int b) {
      Transport chosen = CHOICE.between(a, b, devices, bootstrap);
      assertThat(CHOICE.between(b, a, devices, bootstrap))
          .as("the other end's choice")
          .isEqualTo(chosen);
      return chosen;
    }
  }

  @Test
  void shouldMapMemoryInsideAHostAndUseRdmaBetweenHostsThatBothHaveIt() {
    Job job = new Job();
    for (int host = 0; host < 2; host++) {
      job.on(host, "IB0,ETHERNET").on(host, "IB0,ETHERNET");
    }
    assertThat(job.between(0, 1)).isEqualTo(Transport.SHM);
    assertThat(job.between(0, 2)).isEqualTo(Transport.IB0);
    assertThat(job.between(1, 2)).isEqualTo(Transport.IB0);
  }

  @Test
  void shouldUseEthernetIfOneSideHasNoRdma() {
    Job job = new Job().on(0, "IB,ETHERNET").on(1, "ETHERNET").on(2, "IB7,ETHERNET");
    assertThat(job.between(0, 1)).isEqualTo(Transport.ETHERNET);
    assertThat(job.between(1, 2)).isEqualTo(Transport.ETHERNET);
    assertThat(job.between(0, 2)).isEqualTo(Transport.IB7);
  }

  @Test
  void shouldAssignADifferentRailToEachLocalRank() {
    Job job = new Job();
    for (int rank = 0; rank < 16; rank++) {
      job.on(rank / 8, rank < 8 ? "IB0,IB1,IB2,IB3,IB4,ETHERNET" : "IB1,IB2,IB3,IB4,IB5");
    }
    Set<Transport> rails = EnumSet.noneOf(Transport.class);
    for (int local = 0; local < 4; local++) {
      rails.add(job.between(local, 8 + local));
    }
    assertThat(rails).containsExactly(Transport.IB1, Transport.IB2, Transport.IB3, Transport.IB4);
    Set<Transport> any = EnumSet.noneOf(Transport.class);
    for (int a = 0; a < 8; a++) {
      for (int b = 8; b < 16; b++) {
        any.add(job.between(a, b));
      }
    }
    assertThat(any).isEqualTo(rails);
  }

  @Test
  void shouldListTheTransportsOfBothRanksIfNoneConnectsThem() {
    Job job = new Job().on(0, "IB0").on(1, "ETHERNET");
    refuses(
        () -> job.between(0, 1),
        "rank 0 can use [IB0]",
        "rank 1 can use [ETHERNET]",
        "FLUXCCL_NETWORK");
  }

  /** Each rank asks its own machine, and only one of them has loaded nvidia-peermem. */
  @Test
  void shouldUseEthernetIfOneHostLacksPeerMemory() {
    Job job = new Job();
    for (int rank = 0; rank < 2; rank++) {
      Communicator communicator = mockFinal(Communicator.class);
      Mockito.when(communicator.bootstrap()).thenReturn(job.bootstrap);
      Mockito.when(job.bootstrap.nRanks()).thenReturn(2);
      Mockito.when(job.bootstrap.hostHash(1)).thenReturn(1L);
      Mockito.when(communicator.unusableBecause(Mockito.any()))
          .thenReturn(Optional.of("this machine has no such device"));
      Mockito.when(communicator.unusableBecause(Transport.IB0))
          .thenReturn(rank == 0 ? Optional.empty() : Optional.of("nvidia-peermem is not loaded"));
      Mockito.when(communicator.unusableBecause(Transport.ETHERNET)).thenReturn(Optional.empty());
      TransportFlags usable = CHOICE.usable(communicator);
      assertThat(usable.contains(Transport.IB0)).isEqualTo(rank == 0);
      job.devices.add(new DeviceDescription(DeviceKind.CUDA, 0, 0, usable, "", List.of(), ""));
    }
    assertThat(job.between(0, 1)).isEqualTo(Transport.ETHERNET);
  }

  @Test
  void shouldUseTheTransportThatTheOptionsForce() {
    Job job = new Job().on(0, "").on(1, "");
    TransportChoice only =
        TransportChoice.of(CollectivesOptions.DEFAULT.withTransport(Transport.ETHERNET));
    assertThat(only.between(0, 1, job.devices, job.bootstrap)).isEqualTo(Transport.ETHERNET);
  }

  @Test
  void shouldRefuseTransportsThatAreNotNetworks() {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    assertThat(options.withNetworks(TransportFlags.parse("ETHERNET")).networks().asSet())
        .containsExactly(Transport.ETHERNET);
    for (TransportFlags wrong :
        List.of(TransportFlags.NONE, TransportFlags.of(Transport.SHM, Transport.IB0))) {
      refuses(() -> options.withNetworks(wrong), "ETHERNET");
    }
  }
}
