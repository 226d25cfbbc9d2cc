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
 * How many parameters a kernel has and of how many bytes each: the driver reads that much behind
 * each address that it is given, whatever lies there. Known where the driver (CUDA 12.4 on) and the
 * native library are there; otherwise every argument is believed.
 *
 * @param sizes bytes of each parameter; null when they are unknown
 */
record KernelSignature(int... sizes) {
  /** Of a kernel about which nothing is known. */
  static final KernelSignature UNKNOWN = new KernelSignature((int[]) null);

  private static final int MOST_PARAMETERS = 4096;

  /** Asks the driver; the function's context is current. */
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
   * Refuses another number of arguments than there are parameters.
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
   * Refuses an argument of another size than its parameter.
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
