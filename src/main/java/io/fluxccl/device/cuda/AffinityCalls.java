// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * Gets and sets the CPUs on which the calling thread may run. CPU n is bit n % 64 of word n / 64.
 */
final class AffinityCalls {
  /** The size that the native side requires. */
  static final int MASK_WORDS = 128;

  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private AffinityCalls() {}

  /** 0, or the negated errno. */
  static native int get(long[] mask);

  /** 0, or the negated errno. */
  static native int set(long[] mask);
}
