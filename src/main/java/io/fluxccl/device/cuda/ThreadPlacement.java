// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;
import java.util.BitSet;
import java.util.Optional;

/**
 * Binds a thread to processors: a thread that polls pinned memory for a GPU is fastest on the GPU's
 * NUMA node. If the processors are unknown or not allowed, the thread's affinity stays unchanged.
 */
final class ThreadPlacement {
  private ThreadPlacement() {}

  /** The processors that the process may use: the affinity before this class changes a thread's. */
  private static final class Allowed {
    static final BitSet PROCESSORS = current();
  }

  /**
   * Binds the calling thread, and the threads that it starts later. Omits processors that this
   * process may not use (containers, taskset).
   *
   * @param processors by their numbers; empty when unknown
   * @return why the thread was not bound, or empty if it is bound
   */
  static Optional<String> bindTo(BitSet processors) {
    if (processors.isEmpty()) {
      return Optional.of("the processors near the GPU are unknown");
    }
    if (!NativeLibrary.isAvailable()) {
      return NativeLibrary.unavailableBecause();
    }
    BitSet allowed = (BitSet) processors.clone();
    allowed.and(Allowed.PROCESSORS);
    if (allowed.isEmpty()) {
      return Optional.of("this process may use none of the processors " + processors);
    }
    long[] mask = new long[AffinityCalls.MASK_WORDS];
    long[] words = allowed.toLongArray();
    System.arraycopy(words, 0, mask, 0, words.length);
    int result = AffinityCalls.set(mask);
    return result == 0
        ? Optional.empty()
        : Optional.of("sched_setaffinity: " + NativeLibrary.errorText(-result));
  }

  /** Returns the processors that the calling thread may run on now; empty if that is unknown. */
  static BitSet current() {
    long[] mask = new long[AffinityCalls.MASK_WORDS];
    return AffinityCalls.get(mask) == 0 ? BitSet.valueOf(mask) : new BitSet();
  }
}
