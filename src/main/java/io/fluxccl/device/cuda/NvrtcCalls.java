// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/** The functions of a libnvrtc that {@link #open} opened; strings are bytes without a NUL. */
final class NvrtcCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private NvrtcCalls() {}

  /**
   * Opens the library until the process ends; throws UnsatisfiedLinkError with the loader's
   * message.
   */
  static native long open(byte[] path);

  /** Loads a library that NVRTC opens by name; returns whether it was loaded. */
  static native boolean preload(byte[] path);

  /** Returns the library's file. */
  static native byte[] path(long library);

  /** Its version, major and minor; an nvrtcResult. */
  static native int version(long library, int[] majorAndMinor);

  /** Returns the architectures that it can generate code for, as in 90, ascending. */
  static native int[] architectures(long library);

  /** Returns NVRTC's name of a result. */
  static native byte[] describe(long library, int status);

  /** Compiles; {@code result[0]} is the image, {@code result[1]} the log; an nvrtcResult. */
  static native int compile(
      long library,
      byte[] source,
      byte[] name,
      byte[][] headers,
      byte[][] headerNames,
      byte[][] options,
      boolean cubin,
      byte[][] result);
}
