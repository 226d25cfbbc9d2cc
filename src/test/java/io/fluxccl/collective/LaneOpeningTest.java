// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Resources of a lane that could not be opened. */
@Timeout(120)
class LaneOpeningTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  /** A family without algorithms whose preparation and close are supplied by the test. */
  private static final class EmptyFamily extends FakeFamily {
    private final Function<PeerConnections, CompletableFuture<Void>> preparing;
    private final Runnable closing;

    EmptyFamily(
        String name,
        Function<PeerConnections, CompletableFuture<Void>> preparing,
        Runnable closing) {
      super(name);
      this.preparing = preparing;
      this.closing = closing;
    }

    @Override
    public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
      return preparing.apply(peers).thenApply(done -> this);
    }

    @Override
    public void close() {
      closing.run();
    }
  }

  @Test
  void shouldCloseAllThatWasReadyThoughAFamilyCannotBeClosed() {
    AtomicInteger closed = new AtomicInteger();
    IllegalStateException closing = new IllegalStateException("can't be closed");
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withFamily(
                new EmptyFamily(
                    "a",
                    peers -> CompletableFuture.completedFuture(null),
                    () -> {
                      throw closing;
                    }))
            .withFamily(
                new EmptyFamily(
                    "b", peers -> CompletableFuture.completedFuture(null), closed::incrementAndGet))
            .withFamily(
                new EmptyFamily(
                    "c",
                    peers ->
                        peers
                            .awaitAllRanks()
                            .thenApply(
                                met -> {
                                  throw new IllegalStateException("can't be prepared");
                                }),
                    () -> {}));
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            Throwable failure =
                catchThrowable(
                    () ->
                        Collectives.create(rank.communicator(), options).get(60, TimeUnit.SECONDS));
            assertThat(failure.getCause())
                .hasMessageContaining("can't be prepared")
                .hasSuppressedException(closing);
            rank.awaitAll();
            assertThat(closed).as("the other family of both ranks").hasValue(2);
            assertThat(rank.communicator().failure()).isNull();
            // The connections are closed too, so another lane can use the tag.
            try (Collectives again = Collectives.create(rank.communicator()).join()) {
              again.barrier().block(LONG);
              rank.awaitAll();
            }
          });
    }
  }
}
