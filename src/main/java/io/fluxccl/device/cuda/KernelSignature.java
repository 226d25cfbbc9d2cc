// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.device.KernelArgs;
import java.util.Arrays;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import jcuda.driver.CUfunction;
import jcuda.driver.CUresult;

/**
 * The number and the sizes of a kernel's parameters. For each parameter, the driver reads that
 * number of bytes from the address that it is given, without a check. Known with CUDA 12.4 or later
 * and the native library; otherwise arguments are not checked.
 *
 * @param sizes bytes of each parameter; null when they are unknown
 */
record KernelSignature(int... sizes) {
  /** The signature of a kernel whose parameters are unknown. */
  static final KernelSignature UNKNOWN = new KernelSignature((int[]) null);

  private static final int MOST_PARAMETERS = 4096;

  /** Queries the driver; the function's context is current. */
  static KernelSignature of(CUfunction function) {
    if (!NativeLibrary.isAvailable()) {
      return UNKNOWN;
    }
    long handle = CudaPointer.valueOf(function);
    long[] offsetAndSize = new long[2];
    int[] sizes = new int[MOST_PARAMETERS];
    for (int i = 0; i < MOST_PARAMETERS; i++) {
      int result = FunctionCalls.parameter(handle, i, offsetAndSize);
      if (result == CUresult.CUDA_ERROR_INVALID_VALUE) {
        return new KernelSignature(Arrays.copyOf(sizes, i));
      }
      if (result != CUresult.CUDA_SUCCESS) {
        return UNKNOWN;
      }
      sizes[i] = (int) offsetAndSize[1];
    }
    return UNKNOWN;
  }

  /**
   * Refuses a number of arguments that differs from the number of parameters.
   *
   * @throws InvalidUsage saying what is wanted
   */
  void checkCount(String kernel, KernelArgs args) {
    if (sizes != null && args.count() != sizes.length) {
      throw new InvalidUsage(
          "kernel " + kernel + " takes " + this + ", was given " + args.count() + ": " + args);
    }
  }

  /**
   * Refuses an argument whose size differs from its parameter's.
   *
   * @param index of an argument, within the count
   * @param length its bytes
   * @throws InvalidUsage saying what is wanted
   */
  void checkLength(String kernel, KernelArgs args, int index, int length) {
    if (sizes != null && length != sizes[index]) {
      throw InvalidUsage.of(
          "argument %s of kernel %s takes %s bytes, was given %s (%s): %s; the kernel takes %s",
          index,
          kernel,
          sizes[index],
          length,
          args.get(index, Object.class).getClass().getSimpleName(),
          advice(sizes[index]),
          this);
    }
  }

  private static String advice(int size) {
    return switch (size) {
      case Integer.BYTES -> "give an Integer or a Float";
      case Long.BYTES -> "give a Long, a Double or a buffer";
      default -> "give a byte[] or ByteBuffer with the structure";
    };
  }

  @Override
  public String toString() {
    if (sizes == null || sizes.length == 0) {
      return sizes == null ? "unknown arguments" : "0 arguments";
    }
    return sizes.length
        + " arguments"
        + IntStream.of(sizes)
            .mapToObj(Integer::toString)
            .collect(Collectors.joining(", ", " of ", " bytes"));
  }
}
