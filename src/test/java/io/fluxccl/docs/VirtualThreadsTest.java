// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * The code of docs/18-kotlin-and-virtual-threads.md. Java Flight Recorder records if a virtual
 * thread keeps its carrier thread while it waits.
 */
@Timeout(120)
@EnabledForJreRange(
    min = JRE.JAVA_25,
    disabledReason = "virtual threads exist since JDK 21, and up to 23 locks pin them to a carrier")
@Tag("jdk")
class VirtualThreadsTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);
  private static final String PINNED = "jdk.VirtualThreadPinned";
  private static final int STEPS = 200;

  @TempDir private Path folder;

  private interface Body {
    void run(RankGroup group) throws Exception;
  }

  // Tests are compiled for Java 17, which does not have it.
  private static ExecutorService newVirtualThreadPerTaskExecutor() throws Exception {
    return (ExecutorService)
        Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
  }

  /**
   * Runs each rank on a virtual thread; returns the events of threads that were pinned in the last
   * round. The first use of a class loads it, and that pins: it is the round before.
   */
  private List<String> onVirtualThreads(int nRanks, int rounds, Body body) throws Exception {
    List<RankGroup> job =
        RankGroup.local(nRanks, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    ExecutorService executor = newVirtualThreadPerTaskExecutor();
    try (Recording recording = new Recording()) {
      recording.enable(PINNED).withoutThreshold().withStackTrace();
      for (int round = 1; round <= rounds; round++) {
        if (round == rounds) {
          recording.start();
        }
        List<Future<?>> ranks = new ArrayList<>();
        for (RankGroup group : job) {
          ranks.add(executor.submit(() -> runOn(group, body)));
        }
        for (Future<?> rank : ranks) {
          rank.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        }
      }
      return pinned(recording);
    } finally {
      RankGroup.closeAll(job);
      executor.shutdownNow();
    }
  }

  private void assertUnpinned(int nRanks, Body body) throws Exception {
    assertThat(onVirtualThreads(nRanks, 2, body)).isEmpty();
  }

  private static Void runOn(RankGroup group, Body body) throws Exception {
    body.run(group);
    return null;
  }

  private List<String> pinned(Recording recording) throws Exception {
    recording.stop();
    Path file = Files.createTempFile(folder, "pinned", ".jfr");
    recording.dump(file);
    return RecordingFile.readAllEvents(file).stream()
        .filter(event -> event.getEventType().getName().equals(PINNED))
        .map(RecordedEvent::toString)
        .collect(Collectors.toList());
  }

  @Test
  void shouldNotPinAVirtualThreadThatWaitsForACollective() throws Exception {
    assertUnpinned(
        2,
        group -> {
          try (DeviceBuffer x = group.device().allocate(4096)) {
            FloatView values = FloatView.of(x);
            for (int step = 0; step < STEPS; step++) {
              values.put(0, group.rank() + step);
              group.collectives().allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block(LIMIT);
              assertThat(values.get(0)).isEqualTo(2 * step + 1);
            }
          }
        });
  }

  /**
   * There are far more virtual threads than carriers: if each kept its carrier, none would
   * continue.
   */
  @Test
  void shouldLetManyVirtualThreadsWaitAtOnce() throws Exception {
    assertUnpinned(
        2,
        group -> {
          ExecutorService perRequest = newVirtualThreadPerTaskExecutor();
          try {
            for (Future<Void> request : waitForBarriers(group.collectives(), perRequest)) {
              request.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
            }
          } finally {
            perRequest.shutdownNow();
          }
        });
  }

  private static List<Future<Void>> waitForBarriers(
      Collectives collectives, ExecutorService perRequest) {
    List<Future<Void>> requests = new ArrayList<>();
    for (int i = 0; i < STEPS; i++) {
      requests.add(perRequest.submit(() -> collectives.barrier().block(LIMIT)));
    }
    return requests;
  }

  /** Ranks begin the calls in opposite orders, and each call is waited for by a thread. */
  @Test
  void shouldLetManyVirtualThreadsWaitForNames() throws Exception {
    assertUnpinned(
        2,
        group -> {
          ExecutorService perRequest = newVirtualThreadPerTaskExecutor();
          try (NamedCollectives named = group.collectives().named().join()) {
            List<Future<Long>> sums = new ArrayList<>();
            for (int i = 0; i < STEPS; i++) {
              String name = "request " + (group.rank() == 0 ? i : STEPS - 1 - i);
              sums.add(
                  perRequest.submit(() -> named.of(name).allReduce(1, ReduceOp.SUM).block(LIMIT)));
            }
            for (Future<Long> sum : sums) {
              assertThat(sum.get(LIMIT.toSeconds(), TimeUnit.SECONDS)).isEqualTo(2L);
            }
            named.barrier("end").block(LIMIT);
          } finally {
            perRequest.shutdownNow();
          }
        });
  }

  @Test
  void shouldJoinSplitAndCloseOnVirtualThreads() throws Exception {
    assertUnpinned(
        4,
        group -> {
          try (RankGroup pair = group.split(group.rank() / 2, group.rank()).join().get();
              DeviceBuffer x = pair.device().allocate(4)) {
            FloatView.of(x).put(0, 1);
            pair.collectives().allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block(LIMIT);
            assertThat(FloatView.of(x).get(0)).isEqualTo(2);
            pair.collectives().barrier().block(LIMIT);
          }
          group.collectives().barrier().block(LIMIT);
        });
  }

  @Test
  void shouldBlockInAContinuationOnAVirtualThread() throws Exception {
    ExecutorService perRequest = newVirtualThreadPerTaskExecutor();
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withScheduler(Schedulers.fromExecutorService(perRequest));
    JoinOptions onHost = JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST);
    List<RankGroup> job = RankGroup.local(2, onHost.withCollectives(options));
    try {
      CompletableFuture.allOf(
              job.stream()
                  .map(RankGroup::collectives)
                  .map(all -> all.barrier().doOnSuccess(done -> all.barrier().block(LIMIT)))
                  .map(Mono::toFuture)
                  .toArray(CompletableFuture<?>[]::new))
          .get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    } finally {
      RankGroup.closeAll(job);
      perRequest.shutdownNow();
    }
  }

  /** Waits in its initializer, where no JDK takes a virtual thread off its carrier. */
  private static final class Pinning {
    private static final long WAITED;

    static {
      long before = System.nanoTime();
      while (System.nanoTime() - before < TimeUnit.MILLISECONDS.toNanos(50)) {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
      }
      WAITED = System.nanoTime() - before;
    }
  }

  @Test
  void shouldSeeAThreadThatIsPinned() throws Exception {
    List<String> pinned = onVirtualThreads(1, 1, group -> assertThat(Pinning.WAITED).isPositive());
    assertThat(pinned).isNotEmpty().first().asString().contains("Pinning");
  }
}
