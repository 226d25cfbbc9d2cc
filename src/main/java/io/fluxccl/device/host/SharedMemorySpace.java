// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Text;
import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Limits the shared memory that this process allocates. A file system in memory (tmpfs) may report
 * more free space than the machine, or the process's control group, has memory. If that is
 * exceeded, the kernel kills a process. {@link #claim} therefore checks both limits.
 */
final class SharedMemorySpace {
  /** Memory that is reserved for other use, in bytes. */
  static final long RESERVE = 64 << 20;

  private static final Set<String> IN_MEMORY = Set.of("tmpfs", "ramfs");
  private static final long KIB = 1024;
  private static final long UNKNOWN = Long.MAX_VALUE;

  private final Path directory;
  private final Path proc;
  private final boolean isInMemory;

  /** Bytes that threads of this process have claimed and not written yet. */
  private final AtomicLong claimed = new AtomicLong();

  /** The control groups of this process, from its own to the root's. */
  private final List<Path> groups;

  /**
   * Finds the limits that apply.
   *
   * @param directory where segments are created
   * @param proc {@code /proc}, except in tests
   * @param cgroup {@code /sys/fs/cgroup}, except in tests
   */
  SharedMemorySpace(Path directory, Path proc, Path cgroup) {
    this.directory = directory;
    this.proc = proc;
    this.isInMemory = typeOf(directory).filter(IN_MEMORY::contains).isPresent();
    this.groups = groups(proc.resolve("self/cgroup"), cgroup);
  }

  private static Optional<String> typeOf(Path directory) {
    try {
      FileStore store = Files.getFileStore(directory);
      return Optional.of(store.type());
    } catch (IOException e) {
      return Optional.empty();
    }
  }

  /**
   * Parses lines of the form {@code 0::/path} in version 2, {@code number:memory:/path} in version
   * 1.
   */
  private static List<Path> groups(Path file, Path cgroup) {
    List<Path> groups = new ArrayList<>();
    for (String line : lines(file)) {
      String[] fields = line.split(":", 3);
      if (fields.length == 3 && Set.of("", "memory").contains(fields[1])) {
        Path root = cgroup.resolve(fields[1]);
        Path group = root.resolve(fields[2].substring(1)).normalize();
        for (; group != null && group.startsWith(root); group = group.getParent()) {
          groups.add(group);
        }
      }
    }
    return groups;
  }

  /**
   * Claims memory; the caller then writes every byte of it. Thread-safe.
   *
   * @param size bytes
   * @return why there is not enough memory, and what to do; empty if it is claimed
   */
  Optional<String> claim(long size) {
    long all = claimed.addAndGet(size);
    Optional<String> shortage =
        shortage(all, directory.toFile().getUsableSpace(), isInMemory ? memory() : UNKNOWN);
    if (shortage.isPresent()) {
      unclaim(size);
    }
    return shortage;
  }

  /** Reduces the claim by {@code bytes} that are written now, or that will not be written. */
  void unclaim(long bytes) {
    claimed.addAndGet(-bytes);
  }

  /**
   * Checks whether there is enough memory.
   *
   * @param size bytes
   * @param usable bytes that the file system has free
   * @param memory bytes of memory that are available
   * @return the free amounts and what to do; empty if there is enough
   */
  Optional<String> shortage(long size, long usable, long memory) {
    if (size > usable) {
      return Optional.of(
          Text.of(
                  "%s has %d bytes free%s; free some, raise its size (docker --shm-size, mount -o",
                  directory, usable, memory == UNKNOWN ? "" : andMemory(memory))
              + " remount,size=), or set "
              + SegmentDirectory.VARIABLE
              + " to a larger directory");
    }
    if (memory != UNKNOWN && size > memory - RESERVE) {
      return Optional.of(
          Text.of(
                  "%s has %d bytes free%s, of which %d are kept for other use; start fewer ranks, free",
                  directory, usable, andMemory(memory), RESERVE)
              + " memory, or raise the container's memory limit");
    }
    return Optional.empty();
  }

  private static String andMemory(long memory) {
    return Text.of(", and %d bytes of memory are available", memory);
  }

  /**
   * Returns the bytes of memory that this process can still allocate; a large number if unknown.
   */
  long memory() {
    long least = value(lines(proc.resolve("meminfo")), "MemAvailable:", UNKNOWN / KIB) * KIB;
    for (Path group : groups) {
      least = Math.min(least, memory(group));
    }
    return least;
  }

  /**
   * Returns a group's available memory. Its file cache counts as used, but the kernel reclaims it
   * on demand.
   */
  private static long memory(Path group) {
    long limit = number(group, "memory.max", "memory.limit_in_bytes");
    long used = number(group, "memory.current", "memory.usage_in_bytes");
    if (limit == UNKNOWN || used == UNKNOWN) {
      return UNKNOWN;
    }
    List<String> stat = lines(group.resolve("memory.stat"));
    long cache = value(stat, "inactive_file ", 0) + value(stat, "active_file ", 0);
    return Math.max(0, limit - used + cache);
  }

  private static long number(Path group, String... names) {
    for (String name : names) {
      List<String> lines = lines(group.resolve(name));
      if (!lines.isEmpty()) {
        return parse(lines.get(0), UNKNOWN);
      }
    }
    return UNKNOWN;
  }

  private static long value(List<String> lines, String name, long otherwise) {
    for (String line : lines) {
      if (line.startsWith(name)) {
        return parse(line.substring(name.length()).replace("kB", ""), otherwise);
      }
    }
    return otherwise;
  }

  private static long parse(String number, long otherwise) {
    try {
      return Long.parseLong(number.strip());
    } catch (NumberFormatException e) {
      return otherwise; // "max"
    }
  }

  private static List<String> lines(Path file) {
    try {
      return Files.readAllLines(file);
    } catch (IOException e) {
      return List.of();
    }
  }
}
