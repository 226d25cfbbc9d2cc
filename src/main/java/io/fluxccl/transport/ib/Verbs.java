// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.transport.RdmaOptions;
import java.io.IOException;
import java.util.List;
import java.util.Optional;

/**
 * RDMA verbs, as far as this transport needs them. Implemented in {@code transport.ib.disni} and by
 * tests.
 */
public interface Verbs {
  /**
   * Returns the names of this machine's RDMA devices, in the order of {@code ibv_get_device_list}.
   * Any thread.
   *
   * @throws IOException naming the call that failed and its errno
   */
  List<String> deviceNames() throws IOException;

  /**
   * Opens a port of a device. Any thread.
   *
   * @param device one of {@link #deviceNames()}
   * @param port the number of its port, from 1
   * @return the open port
   * @throws IOException naming the call that failed and its errno
   */
  Port open(String device, int port) throws IOException;

  /** A port of an RDMA device, with a protection domain. Any thread. */
  interface Port extends AutoCloseable {
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
     * @throws IOException naming the errno: 14 (EFAULT) where the device can't reach such memory,
     *     12 (ENOMEM) above the limit of locked memory
     */
    Memory register(long address, int length) throws IOException;

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
    Memory registerDmaBuf(int descriptor, long offset, long address, int length) throws IOException;

    /** Returns why the device takes no dma-bufs, or empty if it takes them. */
    Optional<String> refusesDmaBufsBecause();

    /**
     * Creates a queue pair that is not connected. The device drops what peers send to it.
     *
     * @param options the sizes of its queues
     * @throws IOException naming the call that failed and its errno
     */
    Link createLink(RdmaOptions options) throws IOException;

    /** Closes the device. All links and memories must be closed before. */
    @Override
    void close();
  }

  /** A queue pair with its completion queue. Used by one thread at a time. */
  interface Link extends AutoCloseable {
    /** The flag of a request that asks for a completion. */
    int SIGNALED = 2;

    /** The flag of a request into which the bytes are copied. */
    int INLINE = 8;

    /** Returns the number of the queue pair, by which peers address it. */
    int number();

    /**
     * Connects the queue pair: from then on it executes what the peer sends, and accepts requests.
     * Exchanges nothing with the peer, whose queue pair drops requests until it is connected, too.
     *
     * @throws IOException naming the call that failed and its errno
     */
    void connect(QueuePairPath path) throws IOException;

    /** Returns the maximum length in bytes of an {@link #INLINE} request. */
    int inlineLimit();

    /**
     * Posts an RDMA write. Allocates nothing.
     *
     * @param id the request's id, which its completion returns
     * @param flags a combination of {@link #SIGNALED} and {@link #INLINE}
     * @param address the address of the source
     * @param length bytes
     * @param localKey the local key of the source
     * @param remoteAddress the address of the target
     * @param remoteKey the remote key of the target
     */
    void postWrite(
        long id,
        int flags,
        long address,
        int length,
        int localKey,
        long remoteAddress,
        int remoteKey)
        throws IOException;

    /**
     * Takes completions, which stay readable until the next call. Allocates nothing.
     *
     * @return the number of completions
     */
    int poll() throws IOException;

    /** Returns the id of one of the completions taken. */
    long completedId(int index);

    /** Returns the {@code ibv_wc_status} of one of the completions taken; 0 is success. */
    int completedStatus(int index);

    /** Destroys the queues. The device uses no memory of its requests any more. Idempotent. */
    @Override
    void close();
  }

  /** A registration of memory with an RDMA device. Any thread. */
  interface Memory extends AutoCloseable {
    /** Returns the key by which requests of this rank name the memory. */
    int localKey();

    /** Returns the key by which requests of peers name the memory. */
    int remoteKey();

    /**
     * Ends the registration. The device does not use the memory any more when this method returns.
     */
    @Override
    void close();
  }

  /**
   * The way from a queue pair of this rank to a queue pair of a peer.
   *
   * @param queuePair the number of the peer's queue pair
   * @param sendPacket the number of the first packet that this end sends
   * @param receivePacket the number of the first packet that the peer sends
   * @param mtu the lesser MTU of both ports, as verbs encode it
   * @param lid the local identifier of the peer's port; 0 on Ethernet
   * @param ownGidIndex the index of this port's GID, the source of packets; -1 to send by LID
   * @param peerGid the 16 bytes of the peer's GID; empty to send by LID
   */
  record QueuePairPath(
      int queuePair,
      int sendPacket,
      int receivePacket,
      int mtu,
      int lid,
      int ownGidIndex,
      byte[] peerGid) {}
}
