package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
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
      pieces[piece] =
          comm.register(
              memory.address() + start,
              Math.min(PIECE, memory.size() - start),
              memory.pointerType());
    }
    return pieces[piece];
  }

  /** Deregisters a memory, which no transfer in flight uses. */
  void forget(OwnedMemory memory) {
    NetMemory[] pieces = known.remove(memory.id());
    if (pieces != null) {
      Closing.all(pieces);
    }
  }
}
