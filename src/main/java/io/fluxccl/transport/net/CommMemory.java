// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DmaBuf;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import java.util.Optional;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * The registrations of this rank's memories with one comm. A memory is registered when first used,
 * in pieces, because some plugins register less than 2 GiB at once. Confined to the agent;
 * allocates nothing for memory already registered.
 */
final class CommMemory {
  /** The length of a piece in bytes, a power of two. No message crosses the boundary of a piece. */
  static final long PIECE = 1L << 30;

  private final NetComm comm;
  private final Long2ObjectHashMap<NetMemory[]> known = new Long2ObjectHashMap<>();

  CommMemory(NetComm comm) {
    this.comm = comm;
  }

  /** Returns the number of bytes from an offset to the end of its piece. */
  static long untilNextPiece(long offset) {
    return PIECE - (offset & PIECE - 1);
  }

  /**
   * Returns the registration of the piece that contains an offset, and registers the piece if
   * needed.
   */
  NetMemory at(OwnedMemory memory, long offset) {
    NetMemory[] pieces = known.get(memory.id());
    if (pieces == null) {
      pieces = new NetMemory[(int) ((memory.size() - 1) / PIECE) + 1];
      known.put(memory.id(), pieces);
    }
    int piece = (int) (offset / PIECE);
    if (pieces[piece] == null) {
      long start = piece * PIECE;
      pieces[piece] = register(memory, start, Math.min(PIECE, memory.size() - start));
    }
    return pieces[piece];
  }

  /**
   * Registers a GPU's memory by a dma-buf where both ends of that can, otherwise by its address.
   */
  private NetMemory register(OwnedMemory memory, long start, long length) {
    if (!memory.isReachedByDmaBuf(comm.device())) {
      return comm.register(memory.address() + start, length, memory.pointerType());
    }
    FluxCclException refusal;
    try {
      Optional<NetMemory> registered = byDmaBuf(memory, start, length);
      if (registered.isPresent()) {
        return registered.get();
      }
      refusal = null;
    } catch (DeviceFailure | TransportFailure e) {
      refusal = e;
    }
    try {
      return comm.register(memory.address() + start, length, memory.pointerType());
    } catch (FluxCclException e) {
      if (refusal != null) {
        e.addSuppressed(refusal);
      }
      throw e;
    }
  }

  private Optional<NetMemory> byDmaBuf(OwnedMemory memory, long start, long length) {
    Optional<DmaBuf> exported = memory.buffer().exportDmaBuf();
    if (exported.isEmpty()) {
      return Optional.empty();
    }
    // The plug-in keeps the memory by its registration: the descriptor is not needed after it.
    try (DmaBuf dmaBuf = exported.get()) {
      return Optional.of(
          comm.registerDmaBuf(
              memory.address() + start,
              length,
              memory.pointerType(),
              dmaBuf.offset() + start,
              dmaBuf.descriptor()));
    }
  }

  /** Deregisters a memory, which no transfer in flight uses. */
  void forget(OwnedMemory memory) {
    NetMemory[] pieces = known.remove(memory.id());
    if (pieces != null) {
      Closing.all(pieces);
    }
  }
}
