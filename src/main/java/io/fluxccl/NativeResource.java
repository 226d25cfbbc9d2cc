package io.fluxccl;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * Where a native library of FluxCCL comes from: out of the jar, by way of a temporary file that is
 * gone as soon as it is loaded, or from where {@value #PATH_PROPERTY} says.
 */
public final class NativeResource {
  /**
   * System property: the file of {@code libfluxccl.so}, or the folder that the native libraries lie
   * in, instead of the jar's.
   */
  public static final String PATH_PROPERTY = "fluxccl.native.path";

  private NativeResource() {}

  /**
   * Finds a library and has it loaded.
   *
   * @param fileName of the library
   * @param buildOn what building it takes: {@code "Linux with a C compiler"}
   * @param loading loads the file that it is given; throws what {@code System.load} throws; called
   *     again with another file when that failed
   * @return why it could not be loaded and what to do about it, or null
   */
  public static String load(String fileName, String buildOn, Consumer<Path> loading) {
    String given = System.getProperty(PATH_PROPERTY);
    if (given != null) {
      Path path = Path.of(given).toAbsolutePath();
      Path file = Files.isDirectory(path) ? path.resolve(fileName) : path;
      // A file is libfluxccl.so under whatever name; another library has to lie beside it.
      if (Files.isDirectory(path) || fileName.equals("libfluxccl.so")) {
        return loadFrom(file, given, loading);
      }
    }
    return loadFromResource(fileName, buildOn, loading);
  }

  private static String loadFrom(Path file, String given, Consumer<Path> loading) {
    try {
      loading.accept(file);
      return null;
    } catch (UnsatisfiedLinkError e) {
      return PATH_PROPERTY + "=" + given + " can't be loaded: " + e.getMessage();
    }
  }

  private static String loadFromResource(String fileName, String buildOn, Consumer<Path> loading) {
    String machine = System.getProperty("os.arch");
    String resource =
        "native/linux-" + (machine.equals("amd64") ? "x86_64" : machine) + "/" + fileName;
    byte[] content;
    try (InputStream in = NativeResource.class.getResourceAsStream(resource)) {
      if (in == null) {
        return "this build has none for "
            + System.getProperty("os.name")
            + " "
            + machine
            + "; build FluxCCL on "
            + buildOn
            + ", or set -D"
            + PATH_PROPERTY;
      }
      content = in.readAllBytes();
    } catch (IOException e) {
      return "its resource can't be read: " + e;
    }
    List<String> problems = new ArrayList<>();
    for (Path folder : extractionFolders()) {
      String problem = extractAndLoad(folder, content, loading);
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

  private static String extractAndLoad(Path folder, byte[] content, Consumer<Path> loading) {
    Path file = null;
    try {
      file =
          Files.createTempFile(
              folder,
              "fluxccl-",
              ".so",
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      Files.write(file, content);
      loading.accept(file);
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
}
