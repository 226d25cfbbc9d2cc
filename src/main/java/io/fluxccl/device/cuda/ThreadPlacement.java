// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.Optional;

/**
 * Binds a thread to processors: a thread that polls pinned memory for a GPU is fastest on the GPU's
 * NUMA node, which {@code /sys} of Linux names. If the processors are unknown or not allowed, the
 * thread's affinity stays unchanged.
 */
final class ThreadPlacement {
  /** An unknown node. */
  static final int UNKNOWN = -1;

  /** The folder in which Linux describes devices and nodes. */
  static final Path SYS = Path.of("/sys");

  /** The size of a mask that the native side requires. CPU n is bit n % 64 of word n / 64. */
  private static final int MASK_WORDS = 128;

  private ThreadPlacement() {}

  /** Returns the node of a PCI device, or {@link #UNKNOWN}. */
  static int numaNode(Path sys, String pciBusId) {
    try {
      String text = Files.readString(sys.resolve("bus/pci/devices/" + pciBusId + "/numa_node"));
      return Math.max(Integer.parseInt(text.trim()), UNKNOWN);
    } catch (IOException | NumberFormatException e) {
      return UNKNOWN;
    }
  }

  /** Returns the processors of a node; empty if they are not known. */
  static BitSet processors(Path sys, int node) {
    BitSet processors = new BitSet();
    try {
      String list = Files.readString(sys.resolve("devices/system/node/node" + node + "/cpulist"));
      for (String range : list.trim().split(",")) {
        String[] ends = range.split("-");
        processors.set(Integer.parseInt(ends[0]), Integer.parseInt(ends[ends.length - 1]) + 1);
      }
    } catch (IOException | RuntimeException e) {
      processors.clear();
    }
    return processors;
  }

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
    long[] mask = new long[MASK_WORDS];
    long[] words = allowed.toLongArray();
    System.arraycopy(words, 0, mask, 0, words.length);
    int result = setAffinity(mask);
    return result == 0
        ? Optional.empty()
        : Optional.of("sched_setaffinity: " + NativeLibrary.errorText(-result));
  }

  /** Returns the processors that the calling thread may run on now; empty if that is unknown. */
  static BitSet current() {
    long[] mask = new long[MASK_WORDS];
    return getAffinity(mask) == 0 ? BitSet.valueOf(mask) : new BitSet();
  }

  /** Gets the CPUs on which the calling thread may run. Returns 0, or the negated errno. */
  private static native int getAffinity(long[] mask);

  /** Sets the CPUs on which the calling thread may run. Returns 0, or the negated errno. */
  private static native int setAffinity(long[] mask);
}
