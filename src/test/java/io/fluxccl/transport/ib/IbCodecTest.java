// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class IbCodecTest {
  private static final long SIZE = 5L << 30;
  private static final IbMemoryHandle.Place PLACE =
      new IbMemoryHandle.Place(0x7f00_0000_1000L, 1L << 30, new int[] {1, -2, 3, 4, 5});

  private static Gid gid(Gid.Kind kind, int seed) {
    byte[] bytes = new byte[Gid.LENGTH];
    new Random(seed).nextBytes(bytes);
    return new Gid(0, kind, bytes);
  }

  private static PortAddress port(boolean ethernet, int lid, Gid... gids) {
    return new PortAddress(new Verbs.Port.Attributes(ethernet, lid, 4), List.of(gids));
  }

  private static IbEndpoint.End end() {
    PortAddress port = port(true, 0x1234, gid(Gid.Kind.ROCE_V2_IPV6, 1), gid(Gid.Kind.ROCE_V1, 2));
    return new IbEndpoint.End(3, 7, 0x123456, 0xabcdef, 0x7f00_0000_1000L, -5, port);
  }

  @Test
  void shouldReadMemoryAsWritten() {
    IbMemoryHandle.Place read = IbMemoryHandle.Place.decode(PLACE.encode(), SIZE, 0);
    assertThat(read.address()).isEqualTo(PLACE.address());
    assertThat(read.piece()).isEqualTo(PLACE.piece());
    assertThat(read.keys()).containsExactly(PLACE.keys());
  }

  /** Decodes each beginning of a wire, and the wire with a bit changed in each of these bytes. */
  private static void assertRefusesChanges(
      byte[] wire, int rank, Consumer<byte[]> decode, int... places) {
    for (int length = 0; length < wire.length; length++) {
      byte[] cut = Arrays.copyOf(wire, length);
      assertThrows(TransportFailure.class, () -> decode.accept(cut), "rank " + rank);
    }
    for (int at : places) {
      byte[] changed = wire.clone();
      changed[at] ^= (byte) 0x80;
      assertThatThrownBy(() -> decode.accept(changed))
          .as("byte %d", at)
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldRefuseMemoryThatIsCutOrChangedOrOfAnotherSize() {
    byte[] wire = PLACE.encode();
    assertRefusesChanges(
        wire, 4, bytes -> IbMemoryHandle.Place.decode(bytes, SIZE, 4), 0, 4, 14, 21, 22, 25);
    for (long size : new long[] {0, -1, 4L << 30, (5L << 30) + 1, Long.MAX_VALUE}) {
      assertThrows(TransportFailure.class, () -> IbMemoryHandle.Place.decode(wire, size, 4));
    }
  }

  @Test
  void shouldReadEndAsWritten() {
    IbEndpoint.End read = IbEndpoint.End.decode(end().encode(), 3);
    assertThat(read.tag()).isEqualTo(7);
    assertThat(read.queuePair()).isEqualTo(0x123456);
    assertThat(read.packet()).isEqualTo(0xabcdef);
    assertThat(read.word()).isEqualTo(0x7f00_0000_1000L);
    assertThat(read.wordKey()).isEqualTo(-5);
    assertThat(read.port().attributes()).isEqualTo(end().port().attributes());
    assertThat(read.port().gids())
        .extracting(Gid::kind)
        .containsExactly(Gid.Kind.ROCE_V2_IPV6, Gid.Kind.ROCE_V1);
    assertThat(read.port().gids().get(1).bytes()).isEqualTo(gid(Gid.Kind.ROCE_V1, 2).bytes());
  }

  @Test
  void shouldRefuseEndThatIsCutOrChangedOrOfAnotherRank() {
    byte[] wire = end().encode();
    // Its rank, the high bytes of its numbers, and its port.
    int[] places = {0, 4, 6, 9, 17, 21, 34, 38, 39, 40, 41};
    assertRefusesChanges(wire, 3, bytes -> IbEndpoint.End.decode(bytes, 3), places);
    assertThrows(TransportFailure.class, () -> IbEndpoint.End.decode(wire, 2));
  }

  @Test
  void shouldSendByTheFirstKindOfGidThatBothPortsHave() {
    Gid v1 = gid(Gid.Kind.ROCE_V1, 1);
    Gid link = gid(Gid.Kind.ROCE_V2_LINK_LOCAL, 2);
    Gid ipv4 = gid(Gid.Kind.ROCE_V2_IPV4, 3);
    PortAddress all = port(true, 0, v1, link, ipv4);
    PortAddress noIp = port(true, 0, v1, gid(Gid.Kind.ROCE_V2_LINK_LOCAL, 4));
    assertThat(all.routeTo(all).own()).isEqualTo(ipv4);
    PortAddress.Route there = all.routeTo(noIp);
    assertThat(there.own()).isEqualTo(link);
    assertThat(there.peer()).isEqualTo(noIp.gids().get(1));
    assertThat(noIp.routeTo(all).peer()).isEqualTo(link);
    assertThat(port(true, 0, ipv4).routeTo(noIp).problem())
        .contains("no address (GID) of the same kind");
  }

  @Test
  void shouldSendByLidWithinAnInfinibandSubnetOnly() {
    Gid here = gid(Gid.Kind.INFINIBAND, 1);
    PortAddress.Route route = port(false, 3, here).routeTo(port(false, 4, here));
    assertThat(route.problem()).isNull();
    assertThat(route.own()).isNull();
    assertThat(port(false, 3, here).routeTo(port(false, 0, here)).problem()).contains("LID");
    assertThat(port(false, 3, here).routeTo(port(false, 4, gid(Gid.Kind.INFINIBAND, 2))).problem())
        .contains("subnets");
    assertThat(port(false, 3, here).routeTo(port(true, 0, here)).problem())
        .isEqualTo("this port's link is InfiniBand, the peer's is Ethernet");
  }

  @Test
  void shouldNameStatusesAsVerbsDo() {
    assertThat(SendQueue.CompletionStatus.describe(10)).startsWith("IBV_WC_REM_ACCESS_ERR (");
    assertThat(SendQueue.CompletionStatus.describe(12)).startsWith("IBV_WC_RETRY_EXC_ERR (");
    assertThat(SendQueue.CompletionStatus.describe(99)).isEqualTo("ibv_wc_status 99");
  }

  @Test
  void shouldRoundTimeoutsUpToExponentsOfDevices() {
    assertThat(RdmaOptions.DEFAULT.ackTimeoutExponent()).isEqualTo(16);
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(1, Duration.ofMillis(1));
    assertThat(quick.ackTimeoutExponent()).isEqualTo(8);
    assertRefused(() -> RdmaOptions.DEFAULT.withRetries(0, Duration.ofMillis(1)), "1 to 7");
    assertRefused(() -> RdmaOptions.DEFAULT.withSendQueueSize(100), "power of two");
  }

  @Test
  void shouldSpreadRanksOverDevicesAlikeFromBothEnds() {
    for (int local = 0; local < 8; local++) {
      for (int remote = 0; remote < 8; remote++) {
        assertThat(Transport.rankToIbDevice(local, remote, 4))
            .isEqualTo(Transport.rankToIbDevice(remote, local, 4));
      }
    }
    assertThat(Transport.rankToIbDevice(3, 2, 4)).isEqualTo(Transport.IB1);
    assertRefused(() -> Transport.rankToIbDevice(0, 0, 9));
  }
}
