package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.JvmAccess;
import io.fluxccl.NativeResource;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.TransportFailure;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Path;
import java.util.Optional;

/**
 * The RDMA verbs of this JVM, implemented by DiSNI and {@code libdisni.so}. They are loaded once,
 * at the first use. Any thread.
 */
public final class VerbsLibrary {
  private static final String IMPLEMENTATION = "io.fluxccl.transport.ib.disni.DisniVerbs";
  private static final String FILE_NAME = "libdisni.so";

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

  private static String load() {
    Optional<String> missing = OptionalLibrary.DISNI.missingBecause();
    if (missing.isPresent()) {
      return missing.get();
    }
    try {
      JvmAccess.requireDirectBuffers();
      String problem =
          NativeResource.load(
              FILE_NAME,
              "Linux with a C compiler, a JDK, libibverbs-dev and librdmacm-dev",
              VerbsLibrary::loadFrom);
      return problem == null
          ? null
          : String.format(
              "%s: %s%s",
              FILE_NAME,
              problem,
              problem.contains("libibverbs") || problem.contains("librdmacm")
                  ? "; install the RDMA libraries (apt-get install libibverbs1 librdmacm1"
                      + " ibverbs-providers)"
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
}
