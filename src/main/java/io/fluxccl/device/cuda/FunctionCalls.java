// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/** Driver functions for modules and functions that JCuda lacks. Some need CUDA 12.4 or later. */
final class FunctionCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private FunctionCalls() {}

  /** Gets the offset and size of a parameter; CUDA_ERROR_INVALID_VALUE after the last one. */
  static native int parameter(long function, int index, long[] offsetAndSize);

  /** Loads every function of a module onto its device now, not at its first launch. */
  static native int loadAll(long module);

  /** Returns whether the driver has what {@link #launchOverlapping} needs (CUDA 12.3 on). */
  static native boolean canOverlap();

  /** cuLaunchKernelEx with programmatic stream serialization; of one dimension. */
  static native int launchOverlapping(
      long function, int gridDim, int blockDim, int sharedBytes, long stream, long parameters);

  /**
   * Returns the error log of the driver's compiler for PTX (ending in a NUL) that it refused to
   * load.
   */
  static native byte[] explain(byte[] image);
}
