package io.fluxccl.transport.ib;

import java.io.IOException;

/** A queue pair with its completion queue. Used by one thread at a time. */
public interface VerbsLink extends AutoCloseable {
  /** Ask for a completion. */
  int SIGNALED = 2;

  /** Copy the bytes into the request. */
  int INLINE = 8;

  /**
   * The name of a completion's status and the usual reason, for a message.
   *
   * @param status an {@code ibv_wc_status}
   */
  static String describe(int status) {
    return CompletionStatus.describe(status);
  }

  /**
   * Whether a completion's status says that the peer, or the way to it, failed.
   *
   * @param status an {@code ibv_wc_status}
   */
  static boolean isRemoteFailure(int status) {
    return CompletionStatus.isRemote(status);
  }

  /** The most bytes that a request can have {@link #INLINE}. */
  int inlineLimit();

  /**
   * Posts an RDMA write. Allocates nothing.
   *
   * @param id comes back with its completion
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
   * Takes completions; what they say is kept until the next call. Allocates nothing.
   *
   * @return how many
   */
  int poll() throws IOException;

  /** The id of one of the completions taken. */
  long completedId(int index);

  /** The status of one of the completions taken, an {@code ibv_wc_status}; 0 is success. */
  int completedStatus(int index);

  /** Disconnects and gives the queues back. Nothing is told of it any more. Idempotent. */
  @Override
  void close();
}
