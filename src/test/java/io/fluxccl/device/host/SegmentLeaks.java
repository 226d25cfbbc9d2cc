// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.awaitility.Awaitility;

/** What this process holds that only closing gives back. */
public final class SegmentLeaks {
  private final long descriptors = segmentDescriptors();
  private final long mappings = segmentMappings();
  private final long threads = threads();

  private SegmentLeaks() {}

  public static SegmentLeaks now() {
    return new SegmentLeaks();
  }

  /** Threads may take a moment to end. */
  public void assertNoneSince() {
    Awaitility.await()
        .untilAsserted(
            () -> {
              assertThat(segmentDescriptors()).as("descriptors").isLessThanOrEqualTo(descriptors);
              assertThat(segmentMappings()).as("mappings").isLessThanOrEqualTo(mappings);
              assertThat(threads()).as("threads").isLessThanOrEqualTo(threads);
              assertThat(fileNames()).as("files").isEmpty();
            });
  }

  public static String maps() {
    try {
      return Files.readString(Path.of("/proc/self/maps"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Names of this process's segments that are still to be seen. */
  static List<String> fileNames() {
    return fileNames(ProcessHandle.current().pid());
  }

  static List<String> fileNames(long pid) {
    try (Stream<Path> files = Files.list(SegmentDirectory.get())) {
      return files
          .map(file -> file.getFileName().toString())
          .filter(name -> name.startsWith("fluxccl-" + pid + "-"))
          .collect(Collectors.toList());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static long segmentMappings() {
    return maps().lines().filter(line -> line.contains("/fluxccl-")).count();
  }

  private static long segmentDescriptors() {
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"))) {
      return descriptors.filter(SegmentLeaks::isSegment).count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isSegment(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString().contains("/fluxccl-");
    } catch (IOException e) {
      return false;
    }
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-"))
        .count();
  }
}
