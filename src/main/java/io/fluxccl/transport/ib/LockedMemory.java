// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.stream.Stream;

/** The limit of memory that this process may register: registered memory can't be paged out. */
final class LockedMemory {
  /**
   * The least sufficient limit in bytes. With less, the library's own memory for one small job may
   * not fit.
   */
  static final long LEAST = 64L << 20;

  private static final Path SELF = Path.of("/proc/self");
  private static final int CAP_IPC_LOCK = 14;

  private LockedMemory() {}

  /** Returns the limit of this process in bytes, or empty if there is none. */
  static OptionalLong limit() {
    return limit(SELF);
  }

  /** Returns the limit of a process, given its folder under {@code /proc}. */
  static OptionalLong limit(Path process) {
    boolean mayIgnoreIt =
        field(process.resolve("status"), "CapEff:")
            .map(word -> (Long.parseUnsignedLong(word, 16) >>> CAP_IPC_LOCK & 1) == 1)
            .orElse(false);
    Optional<String> soft = field(process.resolve("limits"), "Max locked memory");
    return mayIgnoreIt || soft.isEmpty() || soft.get().equals("unlimited")
        ? OptionalLong.empty()
        : OptionalLong.of(Long.parseLong(soft.get()));
  }

  /** Returns the first word after a name, or empty if the file has no such line. */
  private static Optional<String> field(Path file, String name) {
    try (Stream<String> lines = Files.lines(file)) {
      return lines
          .filter(line -> line.startsWith(name))
          .map(line -> line.substring(name.length()).strip().split("\\s+")[0])
          .findFirst();
    } catch (IOException e) {
      return Optional.empty();
    }
  }
}
