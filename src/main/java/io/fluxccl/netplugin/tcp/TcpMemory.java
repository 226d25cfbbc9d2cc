package io.fluxccl.netplugin.tcp;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMemory;

/** A range of host memory; sockets need no more than to know it. */
final class TcpMemory implements NetMemory {
  private final TcpComm comm;
  private final long address;
  private final long size;
  private boolean closed;

  TcpMemory(TcpComm comm, long address, long size) {
    this.comm = comm;
    this.address = address;
    this.size = size;
  }

  /** Refuses a range that is not in it; of a receive, whose room may be larger, just its start. */
  static void check(NetMemory memory, TcpComm comm, long address, long size) {
    if (size == 0) {
      return;
    }
    if (!(memory instanceof TcpMemory range) || range.closed || range.comm != comm) {
      throw new InvalidUsage("the memory is not registered for the connection with " + comm.peer());
    }
    if (address < range.address || address + size > range.address + range.size) {
      throw new InvalidUsage(
          String.format(
              "%d bytes at %#x are not within the registered %d bytes at %#x",
              size, address, range.size, range.address));
    }
  }

  /** How many bytes there are from an address to its end. */
  long bytesFrom(long from) {
    return address + size - from;
  }

  @Override
  public void close() {
    closed = true;
  }
}
