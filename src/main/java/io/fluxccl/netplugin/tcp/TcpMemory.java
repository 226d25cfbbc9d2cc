// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.Text;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;

/** A registered range of host memory. Sockets need no registration, so it only checks ranges. */
final class TcpMemory implements NetMemory {
  /** Null once it is closed. */
  private TcpComm comm;

  private final long address;
  private final long size;

  TcpMemory(TcpComm comm, long address, long size) {
    this.comm = comm;
    this.address = address;
    this.size = size;
  }

  /**
   * Refuses a range that is not within the registered memory. A receive passes only its first byte,
   * because its room may extend beyond the memory.
   */
  static void check(NetMemory memory, TcpComm comm, long address, long size) {
    if (size == 0) {
      return;
    }
    if (!(memory instanceof TcpMemory range) || range.comm != comm) {
      throw new NetMisuse("the memory is not registered for the connection with " + comm.peer());
    }
    long offset = address - range.address;
    if (offset < 0 || size > range.size - offset) {
      throw new NetMisuse(
          Text.of(
              "%d bytes at %#x are not within the registered %d bytes at %#x",
              size, address, range.size, range.address));
    }
  }

  /** Returns the number of bytes from an address to the end of the memory. */
  long bytesFrom(long from) {
    return address + size - from;
  }

  @Override
  public void close() {
    comm = null;
  }
}
