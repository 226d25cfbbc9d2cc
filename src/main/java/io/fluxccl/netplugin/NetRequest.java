// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/**
 * A send, receive or flush in flight. It belongs to its comm. The comm may reuse the object for the
 * next operation after {@link #test} has returned true.
 */
public interface NetRequest {
  /**
   * Makes progress and returns whether the request is done. Must not be called again after it
   * returned true.
   *
   * @return true if the request is done
   * @throws io.fluxccl.InvalidUsage if the peer sent more bytes than the receive has room for
   * @throws io.fluxccl.FluxCclException if the request failed; it then must not be tested again
   */
  boolean test();

  /**
   * Returns the number of bytes sent or received. Valid after {@link #test} has returned true,
   * until the next operation of the comm.
   *
   * @param index the index of the message in its group, 0 if there is no group
   * @return the number of bytes
   */
  long size(int index);
}
