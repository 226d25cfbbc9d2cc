// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/** What the driver knows about modules and functions since CUDA 12.4, and JCuda can't ask. */
final class FunctionCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private FunctionCalls() {}

  /** Offset and size of a parameter; CUDA_ERROR_INVALID_VALUE behind the last one. */
  static native int parameter(long function, int index, long[] offsetAndSize);

  /** Puts every function of a module onto its device now, not at its first launch. */
  static native int loadAll(long module);

  /** Returns whether the driver has what {@link #launchOverlapping} needs (CUDA 12.3 on). */
  static native boolean canOverlap();

  /** cuLaunchKernelEx with programmatic stream serialization; of one dimension. */
  static native int launchOverlapping(
      long function, int gridDim, int blockDim, int sharedBytes, long stream, long parameters);

  /**
   * Returns what the driver's compiler has to say about PTX (ending in a NUL) that it refused to
   * load.
   */
  static native byte[] explain(byte[] image);
}
