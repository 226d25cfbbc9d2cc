// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib.disni;

import java.io.IOException;

/**
 * The calls that DiSNI lacks, in {@code native/disni/queue_pairs.c}: devices by name, ports, queue
 * pairs that are connected by exchanged addresses, and dma-bufs. Objects are DiSNI's object ids,
 * which are addresses.
 */
final class VerbsCalls {
  private VerbsCalls() {}

  /** Returns the names of the devices in the order of {@code ibv_get_device_list}. */
  static native String[] deviceNames() throws IOException;

  /** Returns the context of the device with that name. */
  static native long openDevice(String name) throws IOException;

  static native void closeDevice(long context) throws IOException;

  /** Stores a port's link layer (2 for Ethernet), LID and active MTU. */
  static native void queryPort(long context, int port, int[] result) throws IOException;

  /** Creates a reliable queue pair in the state INIT. */
  static native long createQueuePair(
      long domain, long completions, int port, int maxSend, int maxInline) throws IOException;

  /**
   * Moves a queue pair to the state RTR.
   *
   * @param gidIndex the index of this port's GID, or -1 to send by LID
   * @param gid the peer's GID
   */
  static native void readyToReceive(
      long pair, int port, int mtu, int peerNumber, int packet, int lid, int gidIndex, byte[] gid)
      throws IOException;

  /** Moves a queue pair to the state RTS. The timeout is 4.096 us * 2^timeout. */
  static native void readyToSend(
      long pair, int packet, int timeout, int retries, int notReadyRetries) throws IOException;

  static native void destroyQueuePair(long pair) throws IOException;

  /** Returns the errno with which a device refuses a dma-buf that does not exist. */
  static native int probeDmaBuf(long domain);

  /** Registers a part of a dma-buf and stores the local and the remote key. */
  static native long registerDmaBuf(
      long domain, int descriptor, long offset, long length, long address, int[] keys)
      throws IOException;

  static native void deregister(long region) throws IOException;
}
