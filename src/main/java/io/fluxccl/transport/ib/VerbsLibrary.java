// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.JvmAccess;
import io.fluxccl.NativeResource;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The RDMA verbs of this JVM, implemented by DiSNI and {@code libdisni.so}. They are loaded once,
 * at the first use. Any thread.
 */
public final class VerbsLibrary {
  private static final String IMPLEMENTATION = "io.fluxccl.transport.ib.disni.DisniVerbs";
  private static final String FILE_NAME = "libdisni.so";

  private static final Logger LOGGER = LoggerFactory.getLogger(VerbsLibrary.class);

  /** Written during class initialisation, which publishes it. */
  private static Verbs verbs;

  private static final String UNAVAILABLE = load();

  private VerbsLibrary() {}

  /** Returns the reason that there are no verbs, with advice, or empty if there are. */
  static Optional<String> unavailableBecause() {
    return Optional.ofNullable(UNAVAILABLE);
  }

  /**
   * Returns the verbs.
   *
   * @throws TransportFailure if there are none
   */
  public static Verbs get() {
    if (UNAVAILABLE != null) {
      throw new TransportFailure(FluxCclException.NO_RANK, "no RDMA verbs: " + UNAVAILABLE);
    }
    return verbs;
  }

  /**
   * Returns the names of this machine's RDMA devices in the order of the verbs; none without verbs,
   * or if the kernel serves none.
   */
  static List<String> deviceNames() {
    if (UNAVAILABLE != null) {
      return List.of();
    }
    try {
      return verbs.deviceNames();
    } catch (IOException e) {
      LOGGER.debug("this machine's RDMA devices can't be listed: {}", e.getMessage());
      return List.of();
    }
  }

  private static String load() {
    Optional<String> missing = OptionalLibrary.DISNI.missingReason();
    if (missing.isPresent()) {
      return missing.get();
    }
    try {
      JvmAccess.requireDirectBuffers();
      String problem =
          NativeResource.load(
              FILE_NAME,
              "Linux with a C compiler, a JDK and libibverbs-dev",
              VerbsLibrary::loadFrom);
      return problem == null
          ? null
          : Text.of(
              "%s: %s%s",
              FILE_NAME,
              problem,
              problem.contains("libibverbs")
                  ? "; install the RDMA libraries (apt-get install libibverbs1 ibverbs-providers)"
                  : "");
    } catch (InvalidUsage | IllegalStateException e) {
      return e.getMessage();
    }
  }

  private static void loadFrom(Path file) {
    try {
      verbs =
          (Verbs)
              Class.forName(IMPLEMENTATION, true, new DisniLoader(file))
                  .getConstructor()
                  .newInstance();
    } catch (InvocationTargetException e) {
      Throwable cause = e.getCause();
      if (cause instanceof UnsatisfiedLinkError) {
        throw (UnsatisfiedLinkError) cause;
      }
      throw new IllegalStateException("DiSNI can't be started: " + cause, cause);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("DiSNI can't be loaded: " + e, e);
    }
  }

  /**
   * Loads DiSNI, and the one package that uses it, from the class path, and locates DiSNI's native
   * library. DiSNI loads that library by name. Without this loader, the JVM would search only
   * folders that are fixed when it starts.
   */
  private static final class DisniLoader extends ClassLoader {
    private static final String LIBRARY = "disni";

    static {
      registerAsParallelCapable();
    }

    private final Path library;

    DisniLoader(Path library) {
      super(DisniLoader.class.getClassLoader());
      this.library = library;
    }

    private static boolean isOurs(String name) {
      return name.startsWith("com.ibm.disni.") || name.startsWith("io.fluxccl.transport.ib.disni.");
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (!isOurs(name)) {
        return super.loadClass(name, resolve);
      }
      synchronized (getClassLoadingLock(name)) {
        Class<?> loaded = findLoadedClass(name);
        return loaded == null ? define(name) : loaded;
      }
    }

    private Class<?> define(String name) throws ClassNotFoundException {
      String file = name.replace('.', '/') + ".class";
      try (InputStream in = getParent().getResourceAsStream(file)) {
        if (in == null) {
          throw new ClassNotFoundException(name + " is not on the class path");
        }
        byte[] bytes = in.readAllBytes();
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException e) {
        throw new ClassNotFoundException(name + " can't be read", e);
      }
    }

    @Override
    protected String findLibrary(String name) {
      return name.equals(LIBRARY) ? library.toString() : null;
    }
  }
}
