// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.PostQueue;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Pinned memory is released if an end can't be made. */
class StagingTest {
  private static final int CAPACITY = 8;

  private final Device device = mock(Device.class);
  private final List<PinnedBuffer> pinned = new ArrayList<>();
  private final Links links = new Links(2);
  private int pinnedAtMost = Integer.MAX_VALUE;
  private Staging staging;

  @BeforeEach
  void open() {
    DeviceStream stream = mock(DeviceStream.class);
    when(device.createPreferredStream(anyString())).thenReturn(stream);
    when(device.allocatePinned(anyInt()))
        .thenAnswer(
            call -> {
              if (pinned.size() == pinnedAtMost) {
                throw new OutOfMemoryError("of a test");
              }
              PinnedBuffer buffer = mock(PinnedBuffer.class);
              when(buffer.buffer()).thenReturn(new UnsafeBuffer(new byte[4096]));
              pinned.add(buffer);
              return buffer;
            });
    for (int i = 0; i < links.senders.length; i++) {
      links.senders[i] = registering(mock(NetSendComm.class));
      links.receivers[i] = registering(mock(NetRecvComm.class));
    }
    staging = new Staging(device);
  }

  private static <C extends NetComm> C registering(C comm) {
    when(comm.register(anyLong(), anyLong(), any())).thenReturn(mock(NetMemory.class));
    return comm;
  }

  private void assertRefused(ThrowingCallable call, int count) {
    assertThatThrownBy(call).isInstanceOf(OutOfMemoryError.class);
    assertThat(pinned).hasSize(count);
    pinned.forEach(buffer -> verify(buffer).close());
    pinned.clear();
  }

  private void outbound() {
    new Outbound(new PostQueue<>(), links, CAPACITY, 1 << 20, false, staging, ticket -> {});
  }

  private void inbound() {
    new Inbound(
        links,
        CAPACITY,
        false,
        new MemoryTable(null, new SecureRandom()),
        staging,
        mock(Inbound.Events.class));
  }

  @Test
  void shouldFreeSlotsIfTheirWordsCannotBePinned() {
    pinnedAtMost = 1;
    assertRefused(() -> staging.sending(links.senders[1], CAPACITY), 1);
  }

  @Test
  void shouldFreeSlotsThatCannotBeRegistered() {
    when(links.senders[1].register(anyLong(), anyLong(), any()))
        .thenThrow(new OutOfMemoryError("of a test"));
    assertRefused(() -> staging.sending(links.senders[1], CAPACITY), 2);
  }

  @Test
  void shouldFreeEarlierRailsWhenTheNextCannotBeMade() {
    pinnedAtMost = 3;
    assertRefused(this::outbound, 3);
    assertRefused(this::inbound, 3);
  }

  @Test
  void shouldFreeAllRailsWhenTheRestCannotBeMade() {
    when(links.senders[1].register(anyLong(), anyLong(), any()))
        .thenReturn(mock(NetMemory.class))
        .thenThrow(new OutOfMemoryError("of a test"));
    assertRefused(this::outbound, 4);
    when(links.receivers[0].register(anyLong(), anyLong(), any()))
        .thenThrow(new OutOfMemoryError("of a test"));
    assertRefused(this::inbound, 4);
  }
}
