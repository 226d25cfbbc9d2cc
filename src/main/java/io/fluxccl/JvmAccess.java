package io.fluxccl;

import java.util.Optional;

/**
 * Access to the JDK's internal packages that libraries of FluxCCL need: Agrona uses {@code
 * jdk.internal.misc.Unsafe}, DiSNI uses {@code sun.nio.ch}. Where the command line has not opened a
 * package, FluxCCL's native library opens it; an application on the class path then needs no
 * option. All methods are for any thread and may be called again.
 */
public final class JvmAccess {
  private JvmAccess() {}

  /**
   * Opens the package that Agrona needs. Call this before the first use of a buffer: a class of
   * Agrona that failed to initialize stays unusable as long as the JVM runs.
   *
   * @throws InvalidUsage if the package can't be opened; the message names the option to add
   */
  public static void requireUnsafe() {
    require("jdk.internal.misc", "--add-opens", "Agrona needs it to access shared memory");
  }

  /**
   * Opens the package that DiSNI needs.
   *
   * @throws InvalidUsage if the package can't be opened; the message names the option to add
   */
  public static void requireDirectBuffers() {
    require("sun.nio.ch", "--add-exports", "DiSNI needs it for RDMA");
  }

  private static void require(String name, String option, String reason) {
    Module base = Object.class.getModule();
    // A class loader's unnamed module shares what is open to ALL-UNNAMED with those of all others.
    Module user = ClassLoader.getSystemClassLoader().getUnnamedModule();
    if (option.equals("--add-opens") ? base.isOpen(name, user) : base.isExported(name, user)) {
      return;
    }
    openNatively(base, name)
        .ifPresent(
            obstacle -> {
              throw new InvalidUsage(
                  "add %s java.base/%s=ALL-UNNAMED to the java command: %s, and FluxCCL's native library can't open the package (%s)"
                      .formatted(option, name, reason, obstacle));
            });
  }

  /** Returns why the native library can't open the package, or empty once the package is open. */
  private static Optional<String> openNatively(Module base, String name) {
    if (!NativeLibrary.isAvailable()) {
      return NativeLibrary.unavailableBecause();
    }
    try {
      open(base, name);
      return Optional.empty();
    } catch (LinkageError | RuntimeException e) {
      return Optional.of(e.toString());
    }
  }

  private static native void open(Module module, String name);
}
