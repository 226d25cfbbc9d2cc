// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

import java.util.function.IntPredicate;

/**
 * The pipes of one kernel thread to several ranks, which it uses together: it takes a message of
 * each of them, and sends one to each. A rank's place in the group is the place of its pipe.
 */
public final class PipeGroup {
  /** All ranks of a group. */
  public static final IntPredicate ALL = place -> true;

  private final Pipe[] pipes;
  private final int own;
  private final long[] slots;

  /**
   * Creates a group.
   *
   * @param pipes by place; this rank's is not used
   * @param own this rank's place
   */
  public PipeGroup(Pipe[] pipes, int own) {
    this.pipes = pipes;
    this.own = own;
    this.slots = new long[pipes.length];
  }

  /** Begins a call whose messages have one signature. */
  public void begin(int signature) {
    for (int i = 1; i < pipes.length; i++) {
      pipes[place(i)].begin(signature, signature);
    }
  }

  private int place(int distance) {
    return (own + distance) % pipes.length;
  }

  /**
   * Waits for a message of each rank.
   *
   * @param sources receives the messages' addresses, by place
   * @param from address of this rank's own message
   * @return false if the communicator was aborted
   */
  public boolean take(long[] sources, long from) {
    for (int i = 1; i < pipes.length; i++) {
      int place = place(i);
      sources[place] = pipes[place].take();
      if (sources[place] == 0) {
        return false;
      }
    }
    sources[own] = from;
    return true;
  }

  /** Frees the slots of the messages that were taken. */
  public void release() {
    for (int i = 1; i < pipes.length; i++) {
      pipes[place(i)].release();
    }
  }

  /**
   * Waits for a free slot to each of some ranks.
   *
   * @param targets receives the slots' addresses, without gaps
   * @param to selects the ranks, by place
   * @return the number of slots; -1 if the communicator was aborted
   */
  public int claim(long[] targets, IntPredicate to) {
    int claimed = 0;
    for (int i = 1; i < pipes.length; i++) {
      if (to.test(place(i))) {
        targets[claimed] = pipes[place(i)].claim();
        if (targets[claimed++] == 0) {
          return -1;
        }
      }
    }
    return claimed;
  }

  /** Sends the claimed slots' first bytes, to the ranks for which they were claimed. */
  public void publish(long bytes, IntPredicate to) {
    for (int i = 1; i < pipes.length; i++) {
      if (to.test(place(i))) {
        pipes[place(i)].publish(bytes);
      }
    }
  }

  /**
   * Waits until all ranks have called this, too; then every rank sees what any wrote before.
   *
   * @return false if the communicator was aborted
   */
  public boolean barrier() {
    if (claim(slots, ALL) < 0) {
      return false;
    }
    publish(0, ALL);
    if (!take(slots, 0)) {
      return false;
    }
    release();
    return true;
  }
}
