// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.slf4j.LoggerFactory;

/** Families that throw where they must not: on opening, on enqueueing, on closing. */
@Timeout(180)
@OnRanks
class BrokenFamilyTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final AtomicInteger closed = new AtomicInteger();

  /** A preferred algorithm for barriers that throws on enqueue, or a set that can't be closed. */
  private static final class BrokenFamily extends FakeFamily implements CollectiveAlgorithm {
    private final Throwable enqueueing;
    private final boolean closesBadly;

    BrokenFamily(String name, Throwable enqueueing, boolean closesBadly) {
      super(name);
      this.enqueueing = enqueueing;
      this.closesBadly = closesBadly;
    }

    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return List.of(this);
    }

    @Override
    public boolean supports(BoundCall call) {
      return enqueueing != null && call.call().collective() == Collective.BARRIER;
    }

    @Override
    public double estimate(BoundCall call) {
      return 0;
    }

    @Override
    public void enqueue(DeviceStream stream, BoundCall call) {
      if (enqueueing instanceof Error) {
        throw (Error) enqueueing;
      }
      throw (RuntimeException) enqueueing;
    }

    @Override
    public CompletableFuture<Void> drain() {
      close();
      return CompletableFuture.completedFuture(null);
    }

    @Override
    public void close() {
      if (closesBadly) {
        throw new IllegalStateException("on purpose");
      }
    }
  }

  private static Collectives open(LocalRank rank, boolean checked, BrokenFamily family) {
    return lane(rank, CollectivesOptions.DEFAULT.withChecks(checked).withFamily(family));
  }

  @ParameterizedTest
  @CsvSource({"false, false", "false, true", "true, false", "true, true"})
  void shouldAbortOnAllRanksWhenAnAlgorithmThrows(boolean checked, boolean isError, LocalRank rank)
      throws Exception {
    boolean breaks = rank.rank() == 0;
    Throwable broken =
        isError ? new OutOfMemoryError("on purpose") : new IllegalStateException("on purpose");
    Collectives collectives =
        open(rank, checked, new BrokenFamily("broken", breaks ? broken : null, false));
    CompletableFuture<Object> end = new CompletableFuture<>();
    Throwable thrown =
        catchThrowable(
            () ->
                collectives
                    .barrier()
                    .subscribe(done -> {}, end::complete, () -> end.complete("completed")));
    if (breaks) {
      assertThat(end).succeedsWithin(LONG).isSameAs(broken);
      // The caller gets a fatal error too, unless another thread enqueues.
      assertThat(thrown).isSameAs(isError && !checked ? broken : null);
    } else {
      assertThat(end).succeedsWithin(LONG).isInstanceOf(FluxCclException.class);
    }
    failsJob(rank, FluxCclException.class, "on purpose");
    assertThat(collectives.barrier().toFuture()).failsWithin(LONG);
  }

  @Test
  void shouldCloseConnectionsIfClosingTheAlgorithmFamilyThrows(LocalRank rank) {
    Collectives collectives = open(rank, false, new BrokenFamily("broken", null, true));
    assertThat(catchThrowable(collectives::close)).hasMessageContaining("on purpose");
    shouldOpenAgain(rank);
  }

  private static void shouldOpenAgain(LocalRank rank) {
    rank.awaitAll();
    assertThat(rank.communicator().failure()).isNull();
    completes(rank.collectives().barrier());
  }

  @Test
  void shouldCloseAllThatWasReadyThoughAFamilyCannotBeClosed(LocalRank rank) {
    FakeFamily other =
        new FakeFamily("b") {
          @Override
          public void close() {
            closed.incrementAndGet();
          }
        };
    FakeFamily unprepared =
        new FakeFamily("c") {
          @Override
          public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
            return peers
                .awaitAllRanks()
                .thenApply(
                    ready -> {
                      throw new IllegalStateException("can't be prepared");
                    });
          }
        };
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withFamily(new BrokenFamily("a", null, true))
            .withFamily(other)
            .withFamily(unprepared);
    Throwable failure =
        catchThrowable(
            () -> Collectives.create(rank.communicator(), options).get(60, TimeUnit.SECONDS));
    assertThat(failure.getCause()).hasMessageContaining("can't be prepared");
    assertThat(failure.getCause().getSuppressed())
        .anySatisfy(closing -> assertThat(closing).hasMessageContaining("on purpose"));
    rank.awaitAll();
    assertThat(closed).as("the other family of both ranks").hasValue(2);
    shouldOpenAgain(rank);
  }

  @Test
  void shouldLogTheErrorIfClosingALaneThrowsAfterAnAbort(LocalRank rank) {
    Logger log = (Logger) LoggerFactory.getLogger(Lane.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.list = new CopyOnWriteArrayList<>();
    lines.start();
    log.addAppender(lines);
    try {
      open(rank, false, new BrokenFamily("broken", null, rank.rank() == 1));
      if (rank.rank() == 0) {
        rank.communicator().abort(Aborted.of(0, "enough"));
      }
      assertThat(rank.communicator().failed()).succeedsWithin(LONG);
      String line = "rank 1: closing a lane failed; some of its resources were not released";
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(lines.list)
                      .extracting(ILoggingEvent::getFormattedMessage)
                      .contains(line));
    } finally {
      log.detachAppender(lines);
    }
  }
}
