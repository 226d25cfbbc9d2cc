// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.nio.charset.StandardCharsets;
import java.util.Optional;

/**
 * FluxCCL's own native code, {@code libfluxccl.so}, for functions that Java and JCuda lack. It is
 * optional: only CUDA's VMM memory, NVRTC, cuBLASLt, vendors' network plug-ins and the binding of
 * threads to NUMA nodes need it. Loaded once, by the first call of a method here. Thread-safe.
 *
 * <p>{@link NativeResource} finds the file: in the jar, or at the path in {@value #PATH_PROPERTY}.
 */
@Experimental
public final class NativeLibrary {
  /** System property: the library's file, or its folder, instead of the jar's. */
  public static final String PATH_PROPERTY = NativeResource.PATH_PROPERTY;

  private static final String FILE_NAME = "libfluxccl.so";

  /** Must equal FLUXCCL_ABI in native/library.c: a library of another build is refused. */
  private static final int ABI = 3;

  private static final String UNAVAILABLE = load();

  private NativeLibrary() {}

  /** Returns whether the library could be loaded. */
  public static boolean isAvailable() {
    return UNAVAILABLE == null;
  }

  /** Returns why the library could not be loaded and what to do about it, or empty. */
  public static Optional<String> unavailableBecause() {
    return Optional.ofNullable(UNAVAILABLE);
  }

  /**
   * Requires the library.
   *
   * @param purpose the feature that needs it, as the subject of a sentence: {@code "VMM memory"}
   * @throws DeviceFailure if it could not be loaded, saying why
   */
  public static void require(String purpose) {
    if (UNAVAILABLE != null) {
      throw new DeviceFailure(
          0, "NATIVE_LIBRARY", purpose + " needs FluxCCL's native library: " + UNAVAILABLE);
    }
  }

  /**
   * Returns the text of a system error.
   *
   * @param errno its number, positive
   * @return the text, or just the number if the library is missing
   */
  public static String errorText(int errno) {
    return isAvailable()
        ? new String(describe(errno), StandardCharsets.UTF_8) + " (errno " + errno + ")"
        : "errno " + errno;
  }

  /**
   * Sets a variable of this process's environment, as native libraries see it, unless it is set.
   * {@link System#getenv} still returns the value that the process was started with. Does nothing
   * if the library is missing.
   *
   * @param name the variable
   * @param value its value
   * @return whether native libraries now see a value of the variable
   */
  public static boolean setEnvironmentDefault(String name, String value) {
    return isAvailable() && setDefault(nulFree(name), nulFree(value)) == 0;
  }

  private static byte[] nulFree(String text) {
    if (text.indexOf(0) >= 0) {
      throw new InvalidUsage("a NUL character in an environment variable: " + text);
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String load() {
    String problem =
        NativeResource.load(
            FILE_NAME, "Linux with a C compiler and a JDK", file -> System.load(file.toString()));
    if (problem != null) {
      return problem;
    }
    try {
      int found = abi();
      return found == ABI
          ? null
          : "it is another build (ABI " + found + ", this is " + ABI + "); build both together";
    } catch (UnsatisfiedLinkError e) {
      return "what was loaded is another library: " + e.getMessage();
    }
  }

  private static native int abi();

  private static native byte[] describe(int errno);

  private static native int setDefault(byte[] name, byte[] value);
}
