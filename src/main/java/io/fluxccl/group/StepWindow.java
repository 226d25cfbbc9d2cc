// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.Consumer;

/**
 * Limits how many commands of a {@link StepLoop} a follower may have received and not completed, so
 * that no queue grows while a follower is slower than rank 0. Each follower confirms the steps that
 * it has completed, several at once while it keeps up. Rank 0 waits for a confirmation only if the
 * window is full, and no longer than the time limit of a step.
 */
final class StepWindow {
  /** Commands that a follower may have received beyond the steps that may be in flight. */
  static final int AHEAD = 16;

  private static final int BATCH = 8;

  private final Bootstrap bootstrap;
  private final int tag;
  private final int size;
  private final Duration limit;

  // Of rank 0, by follower: the completed steps that it has confirmed, and whether a
  // confirmation is awaited.
  private final AtomicLongArray confirmed;
  private final AtomicIntegerArray asked;

  // Of rank 0: written by the thread that drains.
  private volatile long sent;

  // Of a follower.
  private final AtomicLong received = new AtomicLong();
  private final AtomicLong completed = new AtomicLong();
  private final AtomicLong told = new AtomicLong();

  /**
   * @param tag of commands; confirmations travel the other way with the same one
   * @param maxInFlight how many steps may be in flight on a rank
   * @param limit how long rank 0 waits for a follower
   */
  StepWindow(Bootstrap bootstrap, int tag, int maxInFlight, Duration limit) {
    this.bootstrap = bootstrap;
    this.tag = tag;
    this.size = (int) Math.min((long) maxInFlight + AHEAD, Integer.MAX_VALUE);
    this.limit = limit;
    this.confirmed = new AtomicLongArray(bootstrap.nRanks());
    this.asked = new AtomicIntegerArray(bootstrap.nRanks());
  }

  // ---- rank 0 ----

  /**
   * Returns whether all followers have room for a command. If not, awaits a confirmation of those
   * that have none.
   *
   * @param again called after a confirmation, on the bootstrap's thread
   * @param failed called if a follower does not confirm in time, or can't
   */
  boolean isOpen(Runnable again, Consumer<FluxCclException> failed) {
    boolean open = true;
    for (int peer = 1; peer < bootstrap.nRanks(); peer++) {
      if (sent - confirmed.get(peer) >= size) {
        open = false;
        if (asked.compareAndSet(peer, 0, 1)) {
          await(peer, again, failed);
        }
      }
    }
    return open;
  }

  private void await(int peer, Runnable again, Consumer<FluxCclException> failed) {
    bootstrap
        .recv(peer, tag, Deadline.after(limit))
        .whenComplete(
            (answer, failure) -> {
              asked.set(peer, 0);
              long steps = failure == null ? steps(answer) : -1;
              if (failure != null) {
                failed.accept(describe(peer, FluxCclException.from(failure)));
              } else if (steps < 0 || steps > sent) {
                failed.accept(
                    Aborted.of(peer, "rank %s sent a malformed confirmation of steps", peer));
              } else {
                confirmed.accumulateAndGet(peer, steps, Math::max);
                again.run();
              }
            });
  }

  private static long steps(byte[] answer) {
    return answer.length == Long.BYTES ? ByteBuffer.wrap(answer).getLong() : -1;
  }

  private FluxCclException describe(int peer, FluxCclException failure) {
    if (!(failure instanceof Timeout)) {
      return failure;
    }
    return new Timeout(
        failure.rank(),
        Text.of(
            "step loop on rank 0: rank %s has confirmed %s of %s steps, and none more within %s ms;"
                + " has it called follow, and is its step slow or stopped? (%s)",
            peer, confirmed.get(peer), sent, limit.toMillis(), failure.getMessage()));
  }

  /** Counts a command that is about to be sent to all followers. */
  void sending() {
    sent++;
  }

  // ---- the other ranks ----

  /** Counts a command of rank 0; returns whether the window had room for it. */
  boolean received() {
    boolean room = received.incrementAndGet() - completed.get() <= size;
    confirm();
    return room;
  }

  /** Counts a step that this rank has completed. */
  void completed() {
    completed.incrementAndGet();
    confirm();
  }

  /** Confirms steps if rank 0 may wait for that, or if there are several. */
  private void confirm() {
    long before = told.get();
    long now = completed.get();
    boolean awaited = received.get() - before >= size;
    if (now > before && (awaited || now - before >= BATCH) && told.compareAndSet(before, now)) {
      byte[] answer = ByteBuffer.allocate(Long.BYTES).putLong(now).array();
      // If it is lost, the job has failed or this bootstrap was closed.
      bootstrap.send(0, tag, answer, Deadline.never());
    }
  }

  int size() {
    return size;
  }
}
