// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.NativeLibrary;

/**
 * The functions of a libcublasLt that {@link #open} opened. Results that are an {@code int} are a
 * {@code cublasStatus_t}. The device's context must be current.
 */
final class CublasLtCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private CublasLtCalls() {}

  /**
   * Opens the library until the process ends; throws UnsatisfiedLinkError with the loader's
   * message.
   */
  static native long open(byte[] path);

  /** Its version: 130100 is 13.1.0. */
  static native long version(long library);

  /** Returns NVIDIA's name of a status. */
  static native byte[] describe(long library, int status);

  /** Creates a handle, {@code result[0]}. */
  static native int create(long library, long[] result);

  static native int destroy(long library, long handle);

  /** Chooses an algorithm; {@code result[0]} is a plan, to be freed; types are cudaDataType_t's. */
  static native int plan(
      long library,
      long handle,
      int inType,
      int outType,
      long inputs,
      long outputs,
      long rows,
      long workspaceBytes,
      long[] result);

  static native void freePlan(long plan);

  /** Enqueues a product. */
  static native int multiply(
      long plan, long rows, long in, long weights, long out, long workspace, long stream);
}
