package io.fluxccl.testkit;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Finds what a test leaves behind in this JVM: threads of the library, sockets and other
 * descriptors, mapped segments of shared memory, which is the host device's memory. Memory of GPUs
 * and buffers below 64 KiB are not looked at. Other tests that run at the same time disturb it.
 *
 * <pre>{@code
 * LeakCheck leaks = LeakCheck.begin();
 * ... // opens and closes
 * leaks.assertNone();
 * }</pre>
 */
public final class LeakCheck {
  /** Threads that may do another task are kept for 2 s, and memory is freed behind its close. */
  private static final Duration LIMIT = Duration.ofSeconds(5);

  private static final long LOOK_MILLIS = 20;

  private final Map<String, Integer> before = now();

  private LeakCheck() {}

  /** Remembers what there is now. */
  public static LeakCheck begin() {
    return new LeakCheck();
  }

  /**
   * Waits, up to 5 s, until nothing is left of what has come since {@link #begin}.
   *
   * @throws AssertionError naming what is left
   */
  public void assertNone() {
    Deadline deadline = Deadline.after(LIMIT);
    for (List<String> left = left(); !left.isEmpty(); left = left()) {
      if (deadline.expired()) {
        throw new AssertionError("left behind: " + String.join(", ", left));
      }
      try {
        Thread.sleep(LOOK_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw FluxCclException.from(e);
      }
    }
  }

  private List<String> left() {
    List<String> left = new ArrayList<>();
    now()
        .forEach(
            (what, count) -> {
              int more = count - before.getOrDefault(what, 0);
              if (more > 0) {
                left.add(more == 1 ? what : more + " x " + what);
              }
            });
    return left;
  }

  private static Map<String, Integer> now() {
    Map<String, Integer> found = new HashMap<>();
    Consumer<String> count = what -> found.merge(what, 1, Integer::sum);
    Thread.getAllStackTraces().keySet().stream()
        .filter(LeakCheck::isOfLibrary)
        .forEach(thread -> count.accept("thread " + thread.getName()));
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
        Stream<String> mappings = Files.lines(Path.of("/proc/self/maps"))) {
      descriptors.forEach(descriptor -> descriptor(descriptor, count));
      mappings
          .filter(line -> line.contains("/fluxccl-"))
          .forEach(line -> count.accept("mapping of " + line.substring(line.indexOf('/'))));
    } catch (IOException e) {
      throw FluxCclException.from(e);
    }
    return found;
  }

  /** Threads of streams bear the names that their users gave. */
  private static boolean isOfLibrary(Thread thread) {
    return thread.getName().startsWith("fluxccl-")
        || thread.getClass().getPackageName().startsWith("io.fluxccl.");
  }

  private static void descriptor(Path descriptor, Consumer<String> count) {
    try {
      String target = Files.readSymbolicLink(descriptor).toString();
      // Of what the JVM opens by itself, such as jars, only the kind would count.
      if (target.contains("/fluxccl-")) {
        count.accept("descriptor of " + target);
      } else if (target.startsWith("socket:") || target.startsWith("anon_inode:")) {
        count.accept("descriptor of a " + target.replaceAll(":.*", ""));
      }
    } catch (IOException e) {
      return; // closed meanwhile, as the one that lists them
    }
  }
}
