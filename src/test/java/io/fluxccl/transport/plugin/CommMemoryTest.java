// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.transport.net.Link;
import io.fluxccl.transport.net.NetRanks;
import io.fluxccl.transport.net.OwnedMemory;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class CommMemoryTest {
  @Test
  void shouldDeregisterTheOtherPiecesWhenOneCannotBe() {
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    when(buffer.size()).thenReturn(3 * Link.PIECE);
    OwnedMemory large = NetRanks.ownedMemory(buffer);
    List<Long> deregistered = new ArrayList<>();
    NetComm comm = mock(NetComm.class);
    when(comm.register(anyLong(), anyLong(), any()))
        .thenAnswer(call -> memoryAt(call.getArgument(0), deregistered));
    CommMemory memories = new CommMemory(mock(NetPlugin.class), comm);
    for (long piece = 0; piece < 3; piece++) {
      memories.at(large, piece * Link.PIECE);
    }
    assertThatThrownBy(() -> memories.forget(large)).hasMessage("can't be deregistered");
    assertThat(deregistered).containsExactly(0L, Link.PIECE, 2 * Link.PIECE);
  }

  /** Notes what is deregistered; the first piece can't be. */
  private static NetMemory memoryAt(long address, List<Long> deregistered) {
    return () -> {
      deregistered.add(address);
      if (address == 0) {
        throw new IllegalStateException("can't be deregistered");
      }
    };
  }
}
