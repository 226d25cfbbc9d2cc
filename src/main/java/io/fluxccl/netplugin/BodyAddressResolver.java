// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** Chooses the address for the body of a message, once the message's head has arrived. */
public interface BodyAddressResolver {
  /** The result of {@link #addressOf} if there is no room for the body yet. */
  long NOT_YET = 0;

  /**
   * Returns the address of host memory with room for the body, valid until the receive is done.
   * Called by the thread that tests the receive. After {@link #NOT_YET} a later test calls it
   * again; until then the connection reads no data after the head.
   *
   * @param head the address of the head, in the memory of the receive
   * @param headSize bytes of the head
   * @param bodySize bytes of the body, 1 or more
   * @return the address, or {@link #NOT_YET}
   */
  long addressOf(long head, long headSize, long bodySize);
}
