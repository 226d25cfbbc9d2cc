// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.FinalMocks.mockFinal;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.AbortFlagDescriptor;
import io.fluxccl.device.Device;
import io.fluxccl.device.PinnedBuffer;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The rank that the timeout of a run names. */
class LateRunsTest {
  @ParameterizedTest
  @CsvSource({"-1,1", "2,2"})
  void shouldNameTheLinkThatIsDownWhenARunIsLate(int silent, int blamed) {
    Bootstrap bootstrap = mock(Bootstrap.class);
    when(bootstrap.unresponsiveRank())
        .thenReturn(silent < 0 ? OptionalInt.empty() : OptionalInt.of(silent));
    AbortFlag abortFlag = flagOfAWaitFor(3);
    Communicator communicator = mockFinal(Communicator.class);
    when(communicator.bootstrap()).thenReturn(bootstrap);
    when(communicator.abortFlag()).thenReturn(abortFlag);
    when(communicator.interruption())
        .thenReturn(Optional.of(new TransportFailure(1, "the link to rank 1 is down: reset")));
    Timeout late = LateRuns.timeoutOf(communicator, "all-reduce(4)", Duration.ofSeconds(30), "");
    assertThat(late)
        .hasMessageStartingWith("all-reduce(4) on rank 0: not done within ")
        .hasMessageEndingWith("the link to rank 1 is down: reset");
    assertThat(late.rank()).isEqualTo(blamed);
  }

  private static AbortFlag flagOfAWaitFor(int rank) {
    UnsafeBuffer words = new UnsafeBuffer(new byte[AbortFlagDescriptor.LENGTH]);
    words.putLong(AbortFlagDescriptor.WAITING_FOR_OFFSET, rank + 1);
    PinnedBuffer pinned = mock(PinnedBuffer.class);
    when(pinned.buffer()).thenReturn(words);
    Device device = mock(Device.class);
    when(device.allocatePinned(AbortFlagDescriptor.LENGTH)).thenReturn(pinned);
    return new AbortFlag(device);
  }
}
