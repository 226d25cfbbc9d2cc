package io.fluxccl.netplugin.ib;

import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.ib.VerbsLink;
import java.io.IOException;

/**
 * Posts RDMA writes on a queue pair and knows which are done. Writes count from 0 and complete in
 * their order, so that one completion stands for all writes before it. Used by one thread at a
 * time; allocates nothing.
 */
final class Posts {
  private final VerbsLink link;
  private final int capacity;
  private final int mostUnsignaled;
  private long posted;
  private long signaled;
  private long done;
  private int failure;

  Posts(VerbsLink link, RdmaOptions options) {
    this.link = link;
    capacity = options.sendQueueSize();
    mostUnsignaled = capacity / 4;
  }

  /** How many were posted. */
  long posted() {
    return posted;
  }

  /** How many are done, from the first; the peer's memory has them. */
  long done() {
    return done;
  }

  /** The status of the first that failed, or 0. */
  int failure() {
    return failure;
  }

  /** Whether so many more fit; takes completions if not. */
  boolean hasRoom(int more) throws IOException {
    if (posted - done + more > capacity) {
      poll();
    }
    return failure == 0 && posted - done + more <= capacity;
  }

  /**
   * Posts a write, for which there must be room.
   *
   * @param notify whether its completion is needed soon
   */
  void write(
      boolean notify, long address, int length, int localKey, long remoteAddress, int remoteKey)
      throws IOException {
    // Without a completion now and then the queue would never be known to have room again.
    boolean asks = notify || posted - signaled >= mostUnsignaled;
    int flags =
        (asks ? VerbsLink.SIGNALED : 0) | (length <= link.inlineLimit() ? VerbsLink.INLINE : 0);
    link.postWrite(posted, flags, address, length, localKey, remoteAddress, remoteKey);
    posted++;
    signaled = asks ? posted : signaled;
  }

  /** Takes completions. */
  void poll() throws IOException {
    int taken = done == posted ? 0 : link.poll();
    while (taken > 0) {
      for (int i = 0; i < taken && failure == 0; i++) {
        failure = link.completedStatus(i);
        done = failure == 0 ? link.completedId(i) + 1 : done;
      }
      taken = link.poll();
    }
  }
}
