// SPDX-License-Identifier: Apache-2.0
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
 * Loads FluxCCL's native libraries. A library is loaded from the jar, through a temporary file that
 * is deleted at once, or from the path in {@value #PATH_PROPERTY}.
 */
@Experimental
public final class NativeResource {
  /**
   * System property: the file {@code libfluxccl.so}, or the folder of all native libraries, to use
   * instead of those in the jar.
   */
  public static final String PATH_PROPERTY = "fluxccl.native.path";

  private NativeResource() {}

  /**
   * Finds and loads a library.
   *
   * @param fileName the library's file name
   * @param buildOn the requirements for building it: {@code "Linux with a C compiler"}
   * @param loading loads the given file and throws the exceptions of {@code System.load}; called
   *     again with another file if it fails
   * @return null, or why the library could not be loaded and what to do about it
   */
  public static String load(String fileName, String buildOn, Consumer<Path> loading) {
    try {
      return find(fileName, buildOn, loading);
    } catch (IllegalCallerException e) {
      // JDK 24 and later, with --illegal-native-access=deny.
      return "the JVM forbids it; add --enable-native-access=ALL-UNNAMED to the java command ("
          + e.getMessage()
          + ")";
    }
  }

  private static String find(String fileName, String buildOn, Consumer<Path> loading) {
    String given = System.getProperty(PATH_PROPERTY);
    if (given != null) {
      Path path = Path.of(given).toAbsolutePath();
      Path file = Files.isDirectory(path) ? path.resolve(fileName) : path;
      // A file means libfluxccl.so under any name; other libraries come from the jar then.
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
        return Text.of(
            "this build has none for %s %s; build FluxCCL on %s, or set -D%s",
            System.getProperty("os.name"), machine, buildOn, PATH_PROPERTY);
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

  /** Returns several folders, because some systems forbid execution from their temporary folder. */
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

  /**
   * Deletes a library's file at once, because a loaded library stays mapped and a killed process
   * could not delete it.
   */
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
