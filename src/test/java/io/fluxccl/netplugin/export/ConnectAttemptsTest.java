// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;

class ConnectAttemptsTest {
  private final NetPlugin network = mock(NetPlugin.class);
  private final AutoCloseable begun = mock(AutoCloseable.class);
  private final ByteBuffer handle = ByteBuffer.allocateDirect(NetPlugin.HANDLE_BYTES);
  private final ConnectAttempts attempts = new ConnectAttempts();

  /** Begins a connect, and stays with it. */
  private void begin() {
    when(network.connect(anyInt(), any()))
        .thenAnswer(
            call -> {
              call.<NetHandle>getArgument(1).keep(begun);
              return null;
            });
    assertThat(attempts.connect(network, 0, BufferUtil.address(handle))).isNull();
  }

  @Test
  void shouldContinueAnAttemptIfItsHandleIsUnchanged() throws Exception {
    begin();
    assertThat(attempts.connect(network, 0, BufferUtil.address(handle))).isNull();
    verify(begun, never()).close();
  }

  @Test
  void shouldAbandonAnAttemptThatAnotherReplaces() throws Exception {
    begin();
    handle.put(0, (byte) 1);
    assertThat(attempts.connect(network, 0, BufferUtil.address(handle))).isNull();
    verify(begun).close();
  }

  @Test
  void shouldAbandonAllWhenCleared() throws Exception {
    begin();
    attempts.clear();
    verify(begun).close();
  }
}
