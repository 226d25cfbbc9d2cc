// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.times;
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

  private void connect() {
    assertThat(attempts.connect(network, 0, BufferUtil.address(handle))).isNull();
  }

  @Test
  void shouldContinueAnAttemptUntilItsHandleChangesOrAllAreCleared() throws Exception {
    when(network.connect(anyInt(), any()))
        .thenAnswer(
            call -> {
              call.<NetHandle>getArgument(1).keep(begun);
              return null;
            });
    connect();
    connect();
    verify(begun, never()).close();
    handle.put(0, (byte) 1);
    connect();
    verify(begun).close();
    attempts.clear();
    verify(begun, times(2)).close();
  }
}
