package io.fluxccl.device.cuda;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import jcuda.driver.JCudaDriver;

/**
 * Loads JCuda's native library. JCuda itself unpacks it to a fixed name in {@code java.io.tmpdir}
 * and takes what lies there already: two processes that start together may load half a file, and
 * whoever may write there decides what is loaded. It reads that property at that moment, so for
 * that moment it is a new directory of our own.
 */
final class JCudaLibrary {
  private static final String TEMPORARY_DIRECTORY = "java.io.tmpdir";

  private JCudaLibrary() {}

  /**
   * Loads it, once.
   *
   * @throws LinkageError if it, or the driver behind it, is not there
   */
  static void load() {
    Path directory;
    try {
      directory = Files.createTempDirectory("fluxccl-jcuda"); // for this user only
    } catch (IOException e) {
      throw (LinkageError)
          new UnsatisfiedLinkError("no directory for JCuda's library: " + e).initCause(e);
    }
    String before = System.getProperty(TEMPORARY_DIRECTORY);
    System.setProperty(TEMPORARY_DIRECTORY, directory.toString());
    try {
      JCudaDriver.setExceptionsEnabled(false); // the class loads the library first
    } finally {
      System.setProperty(TEMPORARY_DIRECTORY, before);
      delete(directory); // what is loaded stays in memory
    }
  }

  private static void delete(Path directory) {
    try (Stream<Path> tree = Files.walk(directory)) {
      List<Path> contentsFirst =
          tree.sorted(Comparator.reverseOrder()).collect(Collectors.toList());
      for (Path path : contentsFirst) {
        Files.deleteIfExists(path);
      }
    } catch (IOException e) {
      directory.toFile().deleteOnExit(); // the operating system cleans its temporary directory
    }
  }
}
