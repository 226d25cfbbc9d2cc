// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import java.util.concurrent.atomic.AtomicLong;

/**
 * A reusable barrier for the threads of a block. It does not wait for threads that have left. A
 * thread that fails breaks it, so that all threads return. Allocates nothing.
 */
final class BlockBarrier {
  private static final int ARRIVED_SHIFT = 32;
  private static final int PARTIES_SHIFT = 48;
  private static final long COUNT_MASK = 0xffff;
  private static final long GENERATION_MASK = 0xffff_ffffL;

  /** Generation in bits 0-31, arrived in 32-47, parties in 48-63. */
  private final AtomicLong state = new AtomicLong();

  private volatile boolean broken;

  /** Prepares the barrier for a block. Called while no thread of the block runs. */
  void reset(int parties) {
    broken = false;
    state.set((long) parties << PARTIES_SHIFT | state.get() & GENERATION_MASK);
  }

  boolean await(long abortAddress) {
    if (broken) {
      return false;
    }
    // Full fence: writes before the arrival are visible to threads that see the generation change.
    long before = state.getAndUpdate(BlockBarrier::arrive);
    int generation = (int) before;
    int step = 0;
    while ((int) state.get() == generation) {
      step = SpinWait.step(step, abortAddress, -1);
      if (step < 0) {
        broken = true;
      }
      if (broken) {
        return false;
      }
    }
    // A thread that aborted elsewhere has left: the other threads met, but its work is missing.
    return !broken && !SpinWait.isAborted(abortAddress);
  }

  /** Removes the calling thread from the barrier. */
  void leave() {
    state.getAndUpdate(BlockBarrier::depart);
  }

  private static long arrive(long before) {
    return arrived(before) + 1 == parties(before)
        ? nextGeneration(before)
        : before + (1L << ARRIVED_SHIFT);
  }

  private static long depart(long before) {
    long left = before - (1L << PARTIES_SHIFT);
    return parties(left) > 0 && arrived(left) == parties(left) ? nextGeneration(left) : left;
  }

  /** Makes all threads return, now and until the next reset. */
  void breakUp() {
    broken = true;
  }

  private static long parties(long state) {
    return state >>> PARTIES_SHIFT;
  }

  private static long arrived(long state) {
    return state >>> ARRIVED_SHIFT & COUNT_MASK;
  }

  private static long nextGeneration(long state) {
    return parties(state) << PARTIES_SHIFT | state + 1 & GENERATION_MASK;
  }
}
