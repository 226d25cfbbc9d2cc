// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/**
 * A link between two ends: it carries messages in both directions, in their order. A message is a
 * head ({@link ControlMessage}) and perhaps a body, which the receiver places by the head.
 *
 * <p>All methods are confined to the agent, except {@link #address}, and none of them blocks. The
 * methods that send and receive throw a {@link io.fluxccl.FluxCclException} if the link is lost.
 */
public interface Link extends AutoCloseable {
  /** The length of a piece of memory in bytes; no body crosses the boundary of a piece. */
  long PIECE = 1L << 30;

  /** Reads the header of a head: see {@link #receiveHead}. */
  interface HeadReader {
    /**
     * Checks the header of a head that is arriving.
     *
     * @param head the address of the head
     * @return the number of bytes that follow the header in the same place
     * @throws io.fluxccl.FluxCclException if the header is corrupt, or violates the protocol
     */
    int payload(long head);
  }

  /** Returns the bytes that the peer needs to connect to this end. */
  byte[] address();

  /**
   * Begins to connect.
   *
   * @param peer the peer's {@link #address}
   * @throws io.fluxccl.TransportFailure if the address is malformed
   */
  void connect(byte[] peer);

  /** Advances the connect, and returns whether the link is open. */
  boolean poll(long nowNs);

  /** Returns a description of the missing step of the connect, for an error message. */
  String missing();

  /** Registers the open link with a waiter; returns false if the link must be polled instead. */
  default boolean watchedBy(NetWaiter waiter) {
    return false;
  }

  /** Returns the most messages that may be sent and not be {@linkplain #taken taken}. */
  int capacity();

  /** Returns the length in bytes of the longest body. */
  default long maxBody() {
    return Long.MAX_VALUE;
  }

  /**
   * Returns whether a body arrives before the next head. Otherwise a body may arrive after heads
   * and bodies of later messages.
   */
  default boolean keepsOrder() {
    return true;
  }

  /**
   * Prepares memory of this end of the open link, for heads and for bodies that are not in a
   * registered memory.
   *
   * @param sends whether it is for messages that are sent, or else received
   */
  default void register(long address, long size, boolean sends) {}

  /** Ends the use of a registered memory, which no message in flight uses. */
  default void forget(OwnedMemory memory) {}

  /**
   * Sends a message. Its head and its body must stay as they are until it is taken.
   *
   * @param head the address of the head
   * @param headLength the length of the head
   * @param source the memory that holds the body, or null if {@link #register} was called for it
   * @param body the address of the body
   * @param bodyLength the length of the body; 0 if there is none
   * @param more whether another message follows at once; this message may wait for it
   * @return the number of the message since the link was opened, from 1; 0 if there is no room now
   */
  long send(long head, int headLength, OwnedMemory source, long body, int bodyLength, boolean more);

  /** Continues to send, and returns the number of messages that the network has taken. */
  long taken();

  /**
   * Receives the next head. Not called while a body is due on a link that {@link #keepsOrder}.
   *
   * @param place the address for the head; the same one until the head has arrived
   * @param reader called once with the header
   * @return whether the head has arrived
   */
  boolean receiveHead(long place, HeadReader reader);

  /**
   * Begins to receive the body of a message whose head has arrived; bodies begin in their order.
   *
   * @param slot identifies the body
   * @param head the address of the message's head
   * @param target the memory for the body, or null if {@link #register} was called for it
   * @param address the address for the body
   * @param length the length of the body
   * @return whether it has begun; false if there is no room now
   */
  boolean receiveBody(int slot, long head, OwnedMemory target, long address, int length);

  /** Returns whether a body has arrived, and is visible in its memory. Not called again then. */
  boolean isReceived(int slot);

  /** Closes the link, or what exists of it, without a final message. */
  @Override
  void close();
}
