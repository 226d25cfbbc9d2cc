// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.mock;

import io.fluxccl.DeviceFailure;
import io.fluxccl.RemoteFailure;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testkit.LocalRanks;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntFunction;
import java.util.function.LongConsumer;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.mockito.AdditionalAnswers;

/** Set-up of pipes. */
@Timeout(120)
class ChannelSetupTest {
  private final Set<String> allocating = ConcurrentHashMap.newKeySet();

  /** Returns a host device that records the names of the threads that allocate. */
  private Device watched(int rank) {
    return device(size -> allocating.add(Thread.currentThread().getName()));
  }

  private static Device device(LongConsumer onAllocate) {
    HostDevice host = HostDevice.create();
    Device device = mock(Device.class, AdditionalAnswers.delegatesTo(host));
    doAnswer(
            call -> {
              onAllocate.accept(call.getArgument(0));
              return host.allocate(call.getArgument(0));
            })
        .when(device)
        .allocate(anyLong());
    return device;
  }

  @RepeatedTest(5)
  void shouldAllocateOnNoThreadThatMustNotBlock() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1, this::watched)) {
      ranks.run(
          rank -> {
            Collectives.create(rank.communicator()).join();
            rank.awaitAll();
          });
    }
    assertThat(allocating).isNotEmpty().noneMatch(name -> name.startsWith("fluxccl-bootstrap"));
  }

  @Test
  void shouldEndOnAllRanksWhenOneHasNoMemory() {
    IntFunction<Device> full =
        rank ->
            device(
                size -> {
                  if (rank == 1 && size > 1 << 20) {
                    throw new DeviceFailure(0, "SHARED_MEMORY", "there is no memory");
                  }
                });
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1, full)) {
      ranks.run(
          rank -> {
            assertFails(
                Collectives.create(rank.communicator()),
                rank.rank() == 1 ? DeviceFailure.class : RemoteFailure.class,
                "there is no memory");
            rank.awaitAll();
          });
    }
  }
}
