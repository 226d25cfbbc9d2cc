// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.transport.RdmaOptions;
import java.io.IOException;
import java.util.Optional;

/** A port of an RDMA device, with a protection domain. Any thread. */
public interface VerbsPort extends AutoCloseable {
  /**
   * The attributes of a port that decide how two ports reach each other.
   *
   * @param ethernet whether the link is Ethernet (RoCE); otherwise it is InfiniBand
   * @param lid the port's local identifier, which InfiniBand's subnet manager assigned; 0 on
   *     Ethernet
   * @param mtu the active MTU as verbs encode it: 1 to 5, for 256 to 4096 bytes
   */
  record Attributes(boolean ethernet, int lid, int mtu) {}

  /** Returns the attributes that the port had when it was opened. */
  Attributes attributes();

  /**
   * Registers memory, which the device then reads and writes.
   *
   * @param address the address of the first byte
   * @param length bytes, 1 or more
   * @return the registration
   * @throws IOException naming the errno: 14 (EFAULT) where the device can't reach such memory, 12
   *     (ENOMEM) above the limit of locked memory
   */
  VerbsMemory register(long address, int length) throws IOException;

  /**
   * Registers a part of a dma-buf, by which the device reads and writes memory of another device.
   *
   * @param descriptor the dma-buf's; the caller owns it and may close it after the call
   * @param offset bytes from the dma-buf's start
   * @param address the address by which requests name the first byte
   * @param length bytes, 1 or more
   * @return the registration
   * @throws IOException naming the errno
   */
  VerbsMemory registerDmaBuf(int descriptor, long offset, long address, int length)
      throws IOException;

  /** Returns why the device takes no dma-bufs, or empty if it takes them. */
  Optional<String> refusesDmaBufsBecause();

  /**
   * Creates a queue pair that is not connected. The device drops what peers send to it.
   *
   * @param options the sizes of its queues
   * @throws IOException naming the call that failed and its errno
   */
  VerbsLink createLink(RdmaOptions options) throws IOException;

  /** Closes the device. All links and memories must be closed before. */
  @Override
  void close();
}
