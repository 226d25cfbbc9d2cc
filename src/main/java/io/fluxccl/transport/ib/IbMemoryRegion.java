// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DmaBuf;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Registers a buffer with a port, in pieces. Memory of a GPU is registered by a dma-buf where the
 * GPU and the network device support it, otherwise by its address, which needs nvidia-peermem.
 */
final class IbMemoryRegion {
  private final VerbsPort port;
  private final DeviceBuffer buffer;
  private final long piece;

  private IbMemoryRegion(VerbsPort port, DeviceBuffer buffer, long piece) {
    this.port = port;
    this.buffer = buffer;
    this.piece = piece;
  }

  /**
   * Registers a buffer.
   *
   * @param piece the length in bytes of all pieces but the last
   * @return the registrations of the pieces, in order
   * @throws IOException naming the calls that failed and their errnos
   */
  static VerbsMemory[] register(VerbsPort port, DeviceBuffer buffer, long piece)
      throws IOException {
    IbMemoryRegion registration = new IbMemoryRegion(port, buffer, piece);
    return buffer.device().kind() == DeviceKind.HOST
        ? registration.byAddress()
        : registration.ofGpu();
  }

  private interface Call {
    VerbsMemory register(long offset, int length) throws IOException;
  }

  private VerbsMemory[] ofGpu() throws IOException {
    String noDmaBuf;
    try {
      Optional<VerbsMemory[]> pieces = byDmaBuf();
      if (pieces.isPresent()) {
        return pieces.get();
      }
      noDmaBuf = "the GPU's driver exports no dma-bufs";
    } catch (IOException | DeviceFailure e) {
      noDmaBuf = e.getMessage();
    }
    try {
      return byAddress();
    } catch (IOException e) {
      throw new IOException(Text.of("%s; by dma-buf: %s", e.getMessage(), noDmaBuf), e);
    }
  }

  private Optional<VerbsMemory[]> byDmaBuf() throws IOException {
    Optional<DmaBuf> exported = buffer.exportDmaBuf();
    if (exported.isEmpty()) {
      return Optional.empty();
    }
    // The registrations keep the memory: the descriptor is not needed after them.
    try (DmaBuf dmaBuf = exported.get()) {
      return Optional.of(
          pieces(
              (offset, length) ->
                  port.registerDmaBuf(
                      dmaBuf.descriptor(),
                      dmaBuf.offset() + offset,
                      buffer.address() + offset,
                      length)));
    }
  }

  private VerbsMemory[] byAddress() throws IOException {
    return pieces((offset, length) -> port.register(buffer.address() + offset, length));
  }

  private VerbsMemory[] pieces(Call call) throws IOException {
    List<VerbsMemory> pieces = new ArrayList<>();
    try {
      for (long offset = 0; offset < buffer.size(); offset += piece) {
        pieces.add(call.register(offset, (int) Math.min(piece, buffer.size() - offset)));
      }
      return pieces.toArray(VerbsMemory[]::new);
    } catch (IOException | RuntimeException | Error e) {
      pieces.forEach(VerbsMemory::close);
      throw e;
    }
  }
}
