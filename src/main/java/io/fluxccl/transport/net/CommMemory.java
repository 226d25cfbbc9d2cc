package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * This rank's memory as one comm knows it: registered when first used, in pieces, because some
 * plugins register less than 2 GiB at once. Confined to the agent; allocates nothing for memory
 * that it knows.
 */
final class CommMemory {
  /** Bytes of a piece, a power of two; no message crosses from one to the next. */
  static final long PIECE = 1L << 30;

  private final NetComm comm;
  private final Long2ObjectHashMap<NetMemory[]> known = new Long2ObjectHashMap<>();

  CommMemory(NetComm comm) {
    this.comm = comm;
  }

  /** How many bytes from there on are of one piece. */
  static long untilNextPiece(long offset) {
    return PIECE - (offset & PIECE - 1);
  }

  /** The registration that holds a byte of the memory. */
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

  /** The memory goes; nothing in flight uses it. */
  void forget(OwnedMemory memory) {
    NetMemory[] pieces = known.remove(memory.id());
    if (pieces != null) {
      Closing.all(pieces);
    }
  }
}
