package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.transport.ib.VerbsMemory;
import java.util.ArrayList;
import java.util.List;

/**
 * Registered host memory. A registration has less than 2 GiB, so a longer range has several that
 * overlap by half: wherever a message begins, one of them holds all of it. Used by one thread at a
 * time.
 */
final class IbNetMemory implements NetMemory {
  /** The longest message. */
  static final int MAX_MESSAGE = 1 << 30;

  private static final long STRIDE = MAX_MESSAGE;

  private final IbNetComm comm;
  private final IbNetPort port;
  private final long address;
  private final long size;
  private final List<VerbsMemory> pieces = new ArrayList<>();
  private boolean closed;

  IbNetMemory(IbNetComm comm, IbNetPort port, long address, long size) {
    this.comm = comm;
    this.port = port;
    this.address = address;
    this.size = size;
    try {
      long from = 0;
      do {
        if (size > 0) {
          pieces.add(port.register(address + from, (int) Math.min(Integer.MAX_VALUE, size - from)));
        }
        from += STRIDE;
        // What is left may lie in the last one already.
      } while (from + STRIDE - 1 < size);
    } catch (RuntimeException e) {
      try {
        closePieces();
      } catch (RuntimeException also) {
        e.addSuppressed(also);
      }
      throw e;
    }
  }

  /** The registration that holds a range of a comm, or null for one without bytes. */
  static VerbsMemory find(NetMemory memory, IbNetComm comm, long from, long length) {
    if (length == 0) {
      return null;
    }
    if (!(memory instanceof IbNetMemory range) || range.closed || range.comm != comm) {
      throw new InvalidUsage("the memory is not registered for the connection with " + comm.peer());
    }
    long offset = from - range.address;
    if (offset < 0 || length > range.size - offset) {
      throw new InvalidUsage(
          String.format(
              "%d bytes at %#x are not within the registered %d bytes at %#x",
              length, from, range.size, range.address));
    }
    return range.pieces.get((int) Math.min(offset / STRIDE, range.pieces.size() - 1));
  }

  /** How many bytes there are from an address to its end. */
  long bytesFrom(long from) {
    return address + size - from;
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      Closing.all(this::closePieces, () -> comm.forget(this));
    }
  }

  private void closePieces() {
    List<AutoCloseable> closes = new ArrayList<>();
    pieces.forEach(piece -> closes.add(() -> port.close(piece)));
    Closing.all(closes);
  }
}
