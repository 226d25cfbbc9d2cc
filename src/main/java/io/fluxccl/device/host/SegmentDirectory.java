// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The directory in which files of segments are created: {@code FLUXCCL_SHM_DIR}, otherwise
 * /dev/shm, otherwise the directory for temporary files. A file has a name only briefly, between
 * its creation and its unlinking. Each process once deletes the files of processes that were killed
 * at that point.
 */
@Experimental
public final class SegmentDirectory {
  /** The directory that is used if the user chose none, and if this user can write there. */
  public static final Path SHARED_MEMORY = Path.of("/dev/shm");

  static final String VARIABLE = "FLUXCCL_SHM_DIR";
  static final Logger LOG = LoggerFactory.getLogger(SegmentDirectory.class);

  private static final Pattern FILE_NAME = Pattern.compile("fluxccl-(\\d{1,18})-(\\d{1,18})-\\d+");
  private static final int START_TIME_FIELD_AFTER_NAME = 19;

  private SegmentDirectory() {}

  private static final class Holder {
    static final Path DIRECTORY = ofEnvironment();
    static final SharedMemorySpace SPACE =
        new SharedMemorySpace(DIRECTORY, Path.of("/proc"), Path.of("/sys/fs/cgroup"));

    static {
      sweep(DIRECTORY);
    }
  }

  /** Returns the directory. The first call deletes files of dead processes. */
  public static Path get() {
    return Holder.DIRECTORY;
  }

  /** Returns the accounting of free space in the directory. */
  static SharedMemorySpace space() {
    return Holder.SPACE;
  }

  private static Path ofEnvironment() {
    return choose(System.getenv(VARIABLE), SHARED_MEMORY);
  }

  /**
   * Counts the files of shared memory that processes have left. Does not delete such files first,
   * which would change the count.
   *
   * @param pids the ids of the processes
   * @throws UncheckedIOException if the directory can't be listed
   */
  public static long countFiles(Set<Long> pids) {
    try (Stream<Path> files = Files.list(ofEnvironment())) {
      return files
          .map(file -> FILE_NAME.matcher(file.getFileName().toString()))
          .filter(name -> name.matches() && pids.contains(Long.parseLong(name.group(1))))
          .count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Checks a directory that the user chose.
   *
   * @param override the value of {@value #VARIABLE}, or null
   * @throws InvalidUsage if no file can be created there; the message names the variable
   */
  static void check(String override) {
    if (override == null || override.isBlank()) {
      return;
    }
    Path directory = LocalFiles.path(VARIABLE, override);
    String problem = problem(directory);
    if (problem != null) {
      throw InvalidUsage.of(
          "%s=%s: %s; give a directory for shared memory in which this user can create files",
          VARIABLE, override, problem);
    }
  }

  private static String problem(Path directory) {
    try {
      LocalFiles.requireOwnLinks(directory);
    } catch (IOException e) {
      return e.getMessage();
    }
    return !Files.exists(directory)
        ? "there is no such directory"
        : !Files.isDirectory(directory)
            ? "it is no directory"
            : Files.isWritable(directory) ? null : "this user must not write there";
  }

  /**
   * Returns the directory that is used under a value of {@value #VARIABLE}.
   *
   * @param override the value, or null
   * @param sharedMemory the directory if there is no value; usually {@link #SHARED_MEMORY}
   */
  public static Path choose(String override, Path sharedMemory) {
    if (override != null && !override.isBlank()) {
      return LocalFiles.path(VARIABLE, override);
    }
    return Files.isWritable(sharedMemory)
        ? sharedMemory
        : Path.of(System.getProperty("java.io.tmpdir"));
  }

  /** Returns a file name that identifies its process, even after the process id is reused. */
  static String fileName(String number) {
    long pid = ProcessHandle.current().pid();
    return "fluxccl-" + pid + "-" + startTime(pid).orElse(0L) + "-" + number;
  }

  /** Deletes the files of processes that have ended. */
  static void sweep(Path directory) {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(directory, "fluxccl-*")) {
      for (Path file : files) {
        Matcher name = FILE_NAME.matcher(file.getFileName().toString());
        if (name.matches()
            && !isRunning(Long.parseLong(name.group(1)), Long.parseLong(name.group(2)))) {
          file.toFile().delete();
        }
      }
    } catch (IOException e) {
      LOG.debug("could not sweep {}", directory, e);
    }
  }

  private static boolean isRunning(long pid, long startTime) {
    return startTime(pid).filter(actual -> actual == startTime).isPresent();
  }

  /**
   * Returns when a process started, in clock ticks since boot; empty if there is no such process.
   */
  static Optional<Long> startTime(long pid) {
    try {
      String status = Files.readString(Path.of("/proc/" + pid + "/stat"));
      // The second field, the program's name in brackets, may hold anything, blanks included.
      String[] fields = status.substring(status.lastIndexOf(')') + 2).split(" ");
      return Optional.of(Long.parseLong(fields[START_TIME_FIELD_AFTER_NAME]));
    } catch (IOException | RuntimeException e) {
      return Optional.empty();
    }
  }
}
