// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;

/** A registration that keeps its address range, so that each operation is checked against it. */
final class CheckedMemory implements NetMemory {
  private final CheckedComm comm;
  private final long address;
  private final long size;
  private final NetMemory registered;
  private volatile boolean closed;

  CheckedMemory(CheckedComm comm, long address, long size, NetMemory registered) {
    this.comm = comm;
    this.address = address;
    this.size = size;
    this.registered = registered;
  }

  /** Returns the comm that the memory is registered with. */
  CheckedComm comm() {
    return comm;
  }

  /** Returns the plugin's own registration. */
  NetMemory registered() {
    return registered;
  }

  void check(String call, CheckedComm by, long start, long length) {
    if (closed) {
      throw new NetMisuse(call + " on " + by + ": the memory's registration is closed");
    }
    if (!by.shares(comm)) {
      throw new NetMisuse(
          call + " on " + by + ": the memory is registered with another connection");
    }
    long offset = start - address;
    if (offset < 0 || length > size - offset) {
      throw NetMisuse.of(
          "%s on %s: offset=%s, size=%s is outside of the %s bytes that are registered",
          call, by, offset, length, size);
    }
  }

  /** Marks the registration as closed, because its comm was closed. */
  void end() {
    closed = true;
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      comm.forget(this);
      registered.close();
    }
  }
}
