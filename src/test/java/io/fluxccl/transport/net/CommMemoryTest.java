// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class CommMemoryTest {
  private static final int PIECES = 3;

  /** Registers anything, and notes what is deregistered; the first piece can't be. */
  private static final class Comm implements NetComm {
    final List<Long> deregistered = new ArrayList<>();

    @Override
    public int device() {
      return 0;
    }

    @Override
    public String peer() {
      return "of a test";
    }

    @Override
    public NetMemory register(long address, long size, PointerType type) {
      return () -> {
        deregistered.add(address);
        if (address == 0) {
          throw new IllegalStateException("can't be deregistered");
        }
      };
    }

    @Override
    public NetMemory registerDmaBuf(
        long address, long size, PointerType type, long offset, int fileDescriptor) {
      throw new UnsupportedOperationException("registerDmaBuf");
    }

    @Override
    public void close() {}
  }

  @Test
  void shouldDeregisterTheOtherPiecesWhenOneCannotBe() {
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    when(buffer.size()).thenReturn(PIECES * CommMemory.PIECE);
    OwnedMemory memory = new OwnedMemory(null, 1, buffer, NetMemoryHandle.Place.HOST);
    Comm comm = new Comm();
    CommMemory memories = new CommMemory(comm);
    for (long piece = 0; piece < PIECES; piece++) {
      memories.at(memory, piece * CommMemory.PIECE);
    }
    assertThatThrownBy(() -> memories.forget(memory)).hasMessage("can't be deregistered");
    assertThat(comm.deregistered).containsExactly(0L, CommMemory.PIECE, 2 * CommMemory.PIECE);
  }
}
