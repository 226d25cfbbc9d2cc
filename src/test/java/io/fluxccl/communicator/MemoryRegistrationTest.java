// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportFlags;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

@Ranks(value = 1, leakCheck = false)
class MemoryRegistrationTest {
  private static final Transport FIRST = Transport.SHM;
  private static final Transport SECOND = Transport.ETHERNET;

  @Test
  void shouldEndTheRegistrationsOfOtherTransportsIfOneThrowsAnError(LocalRank rank) {
    MemoryHandle handle = mock(MemoryHandle.class);
    TransportContext fine = mock(TransportContext.class);
    when(fine.register(any())).thenReturn(handle);
    TransportContext broken = mock(TransportContext.class);
    when(broken.register(any())).thenThrow(new OutOfMemoryError("as the test wants"));
    try (Communicator communicator =
            Communicator.create(
                rank.bootstrap(),
                rank.device(),
                CommunicatorOptions.DEFAULT,
                () ->
                    List.of(
                        MockTransports.provider(
                            Set.of(FIRST, SECOND), each -> each == FIRST ? fine : broken)));
        DeviceBuffer buffer = rank.device().allocate(64)) {
      TransportFlags both = TransportFlags.of(FIRST, SECOND);
      assertThatThrownBy(() -> communicator.registerMemory(buffer, both))
          .isInstanceOf(OutOfMemoryError.class);
      verify(fine).register(buffer);
      verify(handle).close();
    }
  }
}
