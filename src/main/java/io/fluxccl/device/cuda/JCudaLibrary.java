package io.fluxccl.device.cuda;

import java.io.IOException;
import jcuda.driver.JCudaDriver;

/**
 * Loads JCuda's native library. JCuda itself unpacks it to a fixed name in {@code java.io.tmpdir}
 * and takes what lies there already: two processes that start together may load half a file, and
 * any user who may write there decides what is loaded. It reads that property at that moment, so
 * for that moment it is a new directory of our own.
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
    try (TemporaryFolder folder = TemporaryFolder.create("fluxccl-jcuda")) {
      String before = System.getProperty(TEMPORARY_DIRECTORY);
      System.setProperty(TEMPORARY_DIRECTORY, folder.path().toString());
      try {
        JCudaDriver.setExceptionsEnabled(false); // the class loads the library first
      } finally {
        System.setProperty(TEMPORARY_DIRECTORY, before); // what is loaded stays in memory
      }
    } catch (IOException e) {
      throw (LinkageError)
          new UnsatisfiedLinkError("no directory for JCuda's library: " + e).initCause(e);
    }
  }
}
