// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.device.cuda.CudaMemory;
import io.fluxccl.device.host.SegmentDirectory;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The resources of this process that only closing releases: threads, open files and sockets,
 * shared-memory segments, memory of the host device, and GPU memory that the library allocated or
 * wrapped. Reads {@code /proc}: without it, only threads and memory of GPUs are known. Other users
 * of a GPU do not affect the result.
 */
@Experimental
public final class ResourceLeaks {
  private static final long POLL_NS = 2_000_000;

  /**
   * The threads of pools that outlive their users: Reactor's, Netty's, the JDK's, JUnit's, the
   * library's.
   */
  private static final Pattern POOLED =
      Pattern.compile(
          "(globalEvent|boundedElastic|parallel|single|fluxccl-(blocking|timers)"
              + "|CompletableFuture|ForkJoin|Common-Cleaner|process reaper|awaitility|junit).*");

  private static final Path DESCRIPTORS = Path.of("/proc/self/fd");
  private static final Path MAPPINGS = Path.of("/proc/self/maps");

  /** A segment's name; the library's own native code has another, and stays loaded. */
  private static final Pattern SEGMENT = Pattern.compile("/fluxccl-\\d+-");

  private final Map<String, String> before;

  private ResourceLeaks(Map<String, String> before) {
    this.before = before;
  }

  /** Records what is held now. */
  public static ResourceLeaks snapshot() {
    openChannel();
    return new ResourceLeaks(held());
  }

  /** Opens and closes a channel: with its first one, the JVM opens a socket that it keeps. */
  private static void openChannel() {
    try {
      SocketChannel.open().close();
    } catch (IOException e) {
      return; // the snapshot finds out what there is
    }
  }

  /** Returns what is held now and was not at the snapshot, one description each. */
  public List<String> since() {
    Map<String, String> now = held();
    now.keySet().removeAll(before.keySet());
    return new ArrayList<>(now.values());
  }

  /**
   * Waits until nothing is held that was not at the snapshot: threads may take a moment to end.
   *
   * @param patience how long
   * @throws AssertionError if something is; it names it
   */
  public void assertNone(Duration patience) {
    long end = System.nanoTime() + patience.toNanos();
    List<String> left = since();
    while (!left.isEmpty()) {
      if (System.nanoTime() - end > 0) {
        throw new AssertionError("leaked: " + String.join("; ", left));
      }
      LockSupport.parkNanos(POLL_NS);
      left = since();
    }
  }

  /** Returns descriptions of what is held, each by a unique key. */
  private static Map<String, String> held() {
    Map<String, String> held = new TreeMap<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (!POOLED.matcher(thread.getName()).matches()) {
        held.put("thread " + thread.getId(), "thread " + thread.getName());
      }
    }
    addDescriptors(held);
    addSegments(held);
    addMappings(held);
    if (OptionalLibrary.JCUDA.missingReason().isEmpty()) {
      for (CudaMemory each : CudaMemory.owned()) {
        held.put("GPU memory " + each.id().number(), "GPU memory " + each);
      }
    }
    return held;
  }

  private static void addDescriptors(Map<String, String> held) {
    try (Stream<Path> all = Files.list(DESCRIPTORS)) {
      for (Path each : all.toList()) {
        String target = targetOf(each);
        // Files that the JVM opens when it first needs them stay open: libraries, random numbers.
        if (target != null
            && !target.endsWith(".jar")
            && !target.matches("/(proc|dev/u?random).*")) {
          held.put("descriptor " + target + " " + each.getFileName(), "descriptor of " + target);
        }
      }
    } catch (IOException e) {
      return; // not Linux
    }
  }

  private static String targetOf(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString();
    } catch (IOException e) {
      return null; // it was closed meanwhile
    }
  }

  private static void addSegments(Map<String, String> held) {
    segmentsOf(ProcessHandle.current().pid())
        .forEach(file -> held.put("segment " + file, "shared-memory segment " + file));
  }

  /**
   * Returns the files of shared memory that a process of this machine has made and not removed,
   * also one that has ended.
   *
   * @param pid the number of the process
   */
  public static List<String> segmentsOf(long pid) {
    String own = "fluxccl-" + pid + "-";
    try (Stream<Path> all = Files.list(SegmentDirectory.get())) {
      return all.map(Path::toString).filter(file -> file.contains(own)).toList();
    } catch (IOException e) {
      return List.of(); // not Linux
    }
  }

  private static void addMappings(Map<String, String> held) {
    mappings().forEach(each -> held.put("mapping " + each, "device memory " + each));
  }

  /** Returns the shared memory that this process has mapped: {@code 7f00-7f80 /dev/shm/...}. */
  public static List<String> mappings() {
    try (Stream<String> lines = Files.lines(MAPPINGS)) {
      return lines
          .filter(line -> SEGMENT.matcher(line).find())
          .map(line -> line.substring(0, line.indexOf(' ') + 1) + line.substring(line.indexOf('/')))
          .toList();
    } catch (IOException e) {
      return List.of(); // not Linux
    }
  }
}
