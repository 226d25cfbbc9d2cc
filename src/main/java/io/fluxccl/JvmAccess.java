// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.Optional;
import org.agrona.UnsafeApi;

/**
 * Access to the JDK's internal packages that libraries of FluxCCL need: Agrona uses {@code
 * jdk.internal.misc.Unsafe}, DiSNI uses {@code sun.nio.ch}. If the command line has not opened a
 * package, FluxCCL's native library opens it, so an application on the class path needs no option.
 * On the module path Agrona always needs the option. All methods are thread-safe and idempotent.
 */
@Experimental
public final class JvmAccess {
  private JvmAccess() {}

  /**
   * Opens the package that Agrona needs. Call this before the first use of a buffer: a class of
   * Agrona that failed to initialize stays unusable as long as the JVM runs.
   *
   * @throws InvalidUsage if the package can't be opened; the message names the option to add
   */
  public static void requireUnsafe() {
    // The class literal does not initialize the class.
    Module agrona = UnsafeApi.class.getModule();
    require("jdk.internal.misc", "--add-opens", agrona, "Agrona needs it to access shared memory");
  }

  /**
   * Opens the package that DiSNI needs.
   *
   * @throws InvalidUsage if the package can't be opened; the message names the option to add
   */
  public static void requireDirectBuffers() {
    // DiSNI is always loaded by a class loader of FluxCCL's own.
    Module disni = ClassLoader.getSystemClassLoader().getUnnamedModule();
    require("sun.nio.ch", "--add-exports", disni, "DiSNI needs it for RDMA");
  }

  private static void require(String name, String option, Module user, String reason) {
    Module base = Object.class.getModule();
    // A package that is open to ALL-UNNAMED is open to the unnamed modules of all class loaders.
    if (option.equals("--add-opens") ? base.isOpen(name, user) : base.isExported(name, user)) {
      return;
    }
    Optional<String> obstacle =
        user.isNamed() ? Optional.of("Agrona is on the module path") : openNatively(base, name);
    if (obstacle.isPresent()) {
      throw new InvalidUsage(
          Text.of(
              "add %s java.base/%s=%s to the java command: %s, and FluxCCL's native library can't open the package (%s)",
              option,
              name,
              user.isNamed() ? user.getName() : "ALL-UNNAMED",
              reason,
              obstacle.get()));
    }
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
