package io.fluxccl.transport.ib;

import java.io.IOException;

/** A queue pair with its completion queue. Used by one thread at a time. */
public interface VerbsLink extends AutoCloseable {
  /** Flag of a request: ask for a completion. */
  int SIGNALED = 2;

  /** Flag of a request: copy the bytes into it. */
  int INLINE = 8;

  /** Returns the most bytes that a request can have {@link #INLINE}. */
  int inlineLimit();

  /**
   * Posts an RDMA write. Allocates nothing.
   *
   * @param id returned with its completion
   * @param flags of {@link #SIGNALED} and {@link #INLINE}
   * @param address of the source
   * @param length bytes
   * @param localKey of the source
   * @param remoteAddress of the target
   * @param remoteKey of the target
   */
  void postWrite(
      long id, int flags, long address, int length, int localKey, long remoteAddress, int remoteKey)
      throws IOException;

  /**
   * Takes completions, which stay readable until the next call. Allocates nothing.
   *
   * @return how many
   */
  int poll() throws IOException;

  /** Returns the id of one of the completions taken. */
  long completedId(int index);

  /** Returns the {@code ibv_wc_status} of one of the completions taken; 0 is success. */
  int completedStatus(int index);

  /** Disconnects and destroys the queues. No event of this link follows. Idempotent. */
  @Override
  void close();
}
