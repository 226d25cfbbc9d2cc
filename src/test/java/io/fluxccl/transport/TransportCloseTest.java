// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;

import java.util.Map;
import org.junit.jupiter.api.Test;

class TransportCloseTest {
  @Test
  void shouldCloseTheOtherHandlesOfAMemoryWhenOneCannotBe() {
    MemoryHandle bad = mock(MemoryHandle.class);
    MemoryHandle good = mock(MemoryHandle.class);
    doThrow(new IllegalStateException("of a test")).when(bad).close();
    RegisteredMemory memory =
        RegisteredMemory.remote(
            new MemoryOrigin(0, 1, 1, 1, 8),
            TransportFlags.of(Transport.SHM, Transport.ETHERNET),
            Map.of(Transport.values()[0], bad, Transport.values()[1], good));
    assertThatThrownBy(memory::close).hasMessage("of a test");
    verify(good).close();
  }
}
