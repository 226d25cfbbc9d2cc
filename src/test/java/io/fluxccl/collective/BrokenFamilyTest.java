// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.slf4j.LoggerFactory;

/** Failures of one algorithm family that throws, and their effect on the other families. */
@Timeout(180)
class BrokenFamilyTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  /** A preferred algorithm for barriers that throws on enqueue or on close. */
  private static final class BrokenFamily extends FakeFamily implements CollectiveAlgorithm {
    private final Throwable enqueueing;
    private final boolean closesBadly;

    BrokenFamily(Throwable enqueueing, boolean closesBadly) {
      super("broken");
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
      refuseToEnd();
      return CompletableFuture.completedFuture(null);
    }

    @Override
    public void close() {
      refuseToEnd();
    }

    private void refuseToEnd() {
      if (closesBadly) {
        throw new IllegalStateException("on purpose");
      }
    }
  }

  private static Collectives open(LocalRank rank, boolean checked, BrokenFamily family) {
    Collectives collectives =
        Collectives.create(
                rank.communicator(),
                CollectivesOptions.DEFAULT.withChecks(checked).withFamily(family))
            .join();
    rank.awaitAll();
    return collectives;
  }

  private static void shouldAbort(boolean checked, Throwable broken) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            boolean breaks = rank.rank() == 0;
            Collectives collectives =
                open(rank, checked, new BrokenFamily(breaks ? broken : null, false));
            CompletableFuture<Object> heard = new CompletableFuture<>();
            Runnable subscription =
                () ->
                    collectives
                        .barrier()
                        .subscribe(
                            (Consumer<Void>) null,
                            heard::complete,
                            () -> heard.complete("completed"));
            Throwable thrown = catchThrowable(subscription::run);
            if (breaks) {
              assertThat(heard).succeedsWithin(LONG).isSameAs(broken);
              assertThat(thrown).isSameAs(broken instanceof Error && !checked ? broken : null);
            } else {
              assertThat(heard).succeedsWithin(LONG).isInstanceOf(FluxCclException.class);
            }
            FluxCclException failure = rank.communicator().failed().get(60, TimeUnit.SECONDS);
            assertThat(failure).hasMessageContaining("on purpose");
            DeviceBuffer x = rank.device().allocate(64);
            assertThat(collectives.allReduce(x, DataType.INT32, ReduceOp.SUM).toFuture())
                .failsWithin(LONG);
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void shouldAbortOnAllRanksWhenAnAlgorithmThrows(boolean checked) {
    shouldAbort(checked, new IllegalStateException("on purpose"));
  }

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void shouldAbortOnAllRanksIfAnAlgorithmThrowsAnError(boolean checked) {
    shouldAbort(checked, new OutOfMemoryError("on purpose"));
  }

  @Test
  void shouldCloseConnectionsIfClosingTheAlgorithmFamilyThrows() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, false, new BrokenFamily(null, true));
            // Close throws on both ranks but frees the tag for another lane.
            assertThat(catchThrowable(collectives::close)).hasMessageContaining("on purpose");
            rank.awaitAll();
            assertThat(rank.communicator().failure()).isNull();
            try (Collectives again =
                Collectives.create(rank.communicator(), CollectivesOptions.DEFAULT).join()) {
              again.barrier().block(LONG);
            }
          });
    }
  }

  @Test
  void shouldLogTheErrorIfClosingALaneThrowsAfterAnAbort() {
    Logger log = (Logger) LoggerFactory.getLogger(LaneClosing.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.list = new CopyOnWriteArrayList<>();
    lines.start();
    log.addAppender(lines);
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            open(rank, false, new BrokenFamily(null, rank.rank() == 1));
            rank.awaitAll();
            if (rank.rank() == 0) {
              rank.communicator().abort(Aborted.of(0, "enough"));
            }
            assertThat(rank.communicator().failed()).succeedsWithin(LONG);
          });
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(lines.list)
                      .extracting(ILoggingEvent::getFormattedMessage)
                      .contains(
                          "rank 1: closing a lane failed; some of its resources were not released"));
    } finally {
      log.detachAppender(lines);
    }
  }
}
