package io.fluxccl;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * FluxCCL's own native code, {@code libfluxccl.so}: what Java and JCuda can't do. It is optional:
 * everything but CUDA's VMM memory, NVRTC and the binding of threads to NUMA nodes works without
 * it. Loaded once, at the first question; all methods are for any thread.
 *
 * <p>It comes out of the jar, by way of a temporary file that is gone as soon as it is loaded, or
 * from where {@value #PATH_PROPERTY} says.
 */
public final class NativeLibrary {
  /** System property: the library's file, or the folder that it lies in, instead of the jar's. */
  public static final String PATH_PROPERTY = "fluxccl.native.path";

  private static final String FILE_NAME = "libfluxccl.so";

  /** Must equal FLUXCCL_ABI in native/library.c: a library of another build is refused. */
  private static final int ABI = 1;

  private static final String UNAVAILABLE = load();

  private NativeLibrary() {}

  /** Whether it could be loaded. */
  public static boolean isAvailable() {
    return UNAVAILABLE == null;
  }

  /** Why it could not be loaded and what to do about it, or empty. */
  public static Optional<String> unavailableBecause() {
    return Optional.ofNullable(UNAVAILABLE);
  }

  /**
   * Insists on it.
   *
   * @param purpose what needs it, as the subject of a sentence: {@code "VMM memory"}
   * @throws DeviceFailure if it could not be loaded, saying why
   */
  public static void require(String purpose) {
    if (UNAVAILABLE != null) {
      throw new DeviceFailure(
          0, "NATIVE_LIBRARY", purpose + " needs FluxCCL's native library: " + UNAVAILABLE);
    }
  }

  /**
   * What the system calls an error.
   *
   * @param errno its number, positive
   * @return the text, or just the number where the library is missing
   */
  public static String errorText(int errno) {
    return isAvailable()
        ? new String(describe(errno), StandardCharsets.UTF_8) + " (errno " + errno + ")"
        : "errno " + errno;
  }

  /**
   * Sets a variable of this process's environment, as native libraries see it, unless it is set.
   * {@link System#getenv} goes on showing what the process was started with. Does nothing where the
   * library is missing.
   *
   * @param name the variable
   * @param value its value
   * @return whether the variable has a value now that native libraries see
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
    String given = System.getProperty(PATH_PROPERTY);
    String problem = given == null ? loadFromResource() : loadFrom(Path.of(given));
    if (problem != null) {
      return problem;
    }
    try {
      int found = abi();
      return found == ABI
          ? null
          : "it is of another build (ABI " + found + ", this is " + ABI + "); build both together";
    } catch (UnsatisfiedLinkError e) {
      return "what was loaded is another library: " + e.getMessage();
    }
  }

  private static String loadFrom(Path given) {
    Path file = Files.isDirectory(given) ? given.resolve(FILE_NAME) : given;
    try {
      System.load(file.toAbsolutePath().toString());
      return null;
    } catch (UnsatisfiedLinkError e) {
      return PATH_PROPERTY + "=" + given + " can't be loaded: " + e.getMessage();
    }
  }

  private static String loadFromResource() {
    String machine = System.getProperty("os.arch");
    String resource =
        "native/linux-" + (machine.equals("amd64") ? "x86_64" : machine) + "/" + FILE_NAME;
    byte[] content;
    try (InputStream in = NativeLibrary.class.getResourceAsStream(resource)) {
      if (in == null) {
        return "this build has none for "
            + System.getProperty("os.name")
            + " "
            + machine
            + "; build FluxCCL on Linux with a C compiler and a JDK, or set -D"
            + PATH_PROPERTY;
      }
      content = in.readAllBytes();
    } catch (IOException e) {
      return "its resource can't be read: " + e;
    }
    List<String> problems = new ArrayList<>();
    for (Path folder : extractionFolders()) {
      String problem = extractAndLoad(folder, content);
      if (problem == null) {
        return null;
      }
      problems.add(folder + ": " + problem);
    }
    return "it can't be loaded from a temporary file (" + String.join("; ", problems) + ")";
  }

  /** More than one, because some systems forbid to execute from their temporary folder. */
  private static List<Path> extractionFolders() {
    return List.of(
        Path.of(System.getProperty("java.io.tmpdir")),
        Path.of("/dev/shm"),
        Path.of(System.getProperty("user.home")));
  }

  private static String extractAndLoad(Path folder, byte[] content) {
    Path file = null;
    try {
      file =
          Files.createTempFile(
              folder,
              "fluxccl-",
              ".so",
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      Files.write(file, content);
      System.load(file.toString());
      return null;
    } catch (IOException | UnsatisfiedLinkError | SecurityException e) {
      return e.toString();
    } finally {
      delete(file);
    }
  }

  /** What is loaded stays mapped; a killed process must leave no file behind. */
  private static void delete(Path file) {
    if (file != null) {
      try {
        Files.deleteIfExists(file);
      } catch (IOException e) {
        file.toFile().deleteOnExit();
      }
    }
  }

  private static native int abi();

  private static native byte[] describe(int errno);

  private static native int setDefault(byte[] name, byte[] value);
}
