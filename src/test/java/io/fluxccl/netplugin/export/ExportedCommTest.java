// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.ArgumentMatchers.eq;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;

/** Networks with more than TCP has: groups of receives, flushes, requests that are not now. */
class ExportedCommTest {
  private static final int GROUP = 3;

  private final NetRecvComm receive = mock(NetRecvComm.class);
  private final NetSendComm send = mock(NetSendComm.class);
  private final NetRequest request = mock(NetRequest.class);
  private final NetMemory memory = mock(NetMemory.class);
  private final ByteBuffer arrays = ByteBuffer.allocateDirect(256).order(ByteOrder.nativeOrder());
  private final long data = BufferUtil.address(arrays);
  private final long sizes = data + 64;
  private final long tags = data + 128;
  private final long handles = data + 192;
  private final ExportedComm exported = new ExportedComm(receive, GROUP);

  private void fill(boolean wide) {
    int number = exported.add(memory);
    for (int i = 0; i < GROUP; i++) {
      arrays.putLong(i * 8, 1000 + i);
      if (wide) {
        arrays.putLong(64 + i * 8, (1L << 33) + i);
      } else {
        arrays.putInt(64 + i * 4, 50 + i);
      }
      arrays.putInt(128 + i * 4, 7 + i);
      arrays.putLong(192 + i * 8, number);
    }
  }

  @Test
  void shouldReadAGroupFromWideArraysAndWriteItsSizes() {
    fill(true);
    when(receive.irecv(anyInt(), any(), any(), any(), any()))
        .thenAnswer(
            call -> {
              assertThat(call.<long[]>getArgument(1)).containsExactly(1000, 1001, 1002);
              assertThat(call.<long[]>getArgument(2))
                  .containsExactly(1L << 33, (1L << 33) + 1, (1L << 33) + 2);
              assertThat(call.<int[]>getArgument(3)).containsExactly(7, 8, 9);
              assertThat(call.<NetMemory[]>getArgument(4)).containsExactly(memory, memory, memory);
              return request;
            });
    int number = exported.irecv(GROUP, data, sizes, true, tags, handles);
    assertThat(number).isPositive();
    assertThat(exported.test(number, sizes)).isFalse();
    when(request.test()).thenReturn(true);
    when(request.size(anyInt())).thenAnswer(call -> 20L + call.<Integer>getArgument(0));
    assertThat(exported.test(number, sizes)).isTrue();
    for (int i = 0; i < GROUP; i++) {
      assertThat(arrays.getInt(64 + i * 4)).isEqualTo(20 + i);
    }
    assertRefused(() -> exported.test(number, sizes));
    // The place has another request now.
    fill(true);
    when(request.test()).thenReturn(false);
    assertThat(exported.irecv(GROUP, data, sizes, true, tags, handles)).isNotEqualTo(number);
    assertRefused(() -> exported.test(number, sizes));
  }

  @Test
  void shouldReadASingleReceiveFromNarrowArrays() {
    fill(false);
    when(receive.irecv(1000, 50, 7, memory)).thenReturn(request);
    assertThat(exported.irecv(1, data, sizes, false, tags, handles)).isPositive();
  }

  @Test
  void shouldReadAFlushFromNarrowArrays() {
    fill(false);
    assertThat(exported.iflush(2, data, sizes, handles)).isZero();
    verify(receive).iflush(eq(2), any(), any(), any());
  }

  @Test
  void shouldHandOutNoRequestWhereTheNetworkHasNone() {
    ExportedComm sending = new ExportedComm(send, 1);
    for (int i = 0; i < 10_000; i++) {
      assertThat(sending.isend(0, 0, 0, 0)).isZero();
    }
    when(send.isend(anyLong(), anyLong(), anyInt(), any())).thenReturn(request);
    assertThat(sending.isend(0, 0, 0, 0)).isPositive();
  }

  @Test
  void shouldGiveBackTheNumberOfARequestThatFailed() {
    ExportedComm sending = new ExportedComm(send, 1);
    when(send.isend(anyLong(), anyLong(), anyInt(), any())).thenReturn(request);
    when(request.test()).thenThrow(new RemoteFailure(1, "gone"));
    for (int i = 0; i < 100; i++) {
      int number = sending.isend(0, 0, 0, 0);
      assertThatThrownBy(() -> sending.test(number, 0)).isInstanceOf(RemoteFailure.class);
    }
  }

  @Test
  void shouldRefuseGroupsThatAreTooLongAndWrongEnds() {
    assertRefused(() -> exported.irecv(GROUP + 1, data, sizes, true, tags, handles));
    assertRefused(() -> exported.irecv(0, data, sizes, true, tags, handles));
    assertRefused(() -> exported.isend(0, 0, 0, 0));
    ExportedComm sending = new ExportedComm(send, 1);
    assertRefused(() -> sending.irecv(1, data, sizes, true, tags, handles));
  }

  @Test
  void shouldReleaseMemoryOnce() {
    int first = exported.add(memory);
    int second = exported.add(mock(NetMemory.class));
    assertThat(second).isNotEqualTo(first);
    exported.remove(first);
    verify(memory).close();
    assertRefused(() -> exported.remove(first));
    assertRefused(() -> exported.remove(99));
    assertThat(exported.add(mock(NetMemory.class))).isEqualTo(first);
  }
}
