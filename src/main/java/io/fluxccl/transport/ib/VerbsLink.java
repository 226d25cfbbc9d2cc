// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import java.io.IOException;

/** A queue pair with its completion queue. Used by one thread at a time. */
public interface VerbsLink extends AutoCloseable {
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
  void connect(VerbsPath path) throws IOException;

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
      long id, int flags, long address, int length, int localKey, long remoteAddress, int remoteKey)
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
