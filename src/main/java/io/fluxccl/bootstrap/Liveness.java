package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import java.time.Duration;
import java.util.OptionalInt;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Sinks;

/**
 * Which rank of the job is silent, as this rank knows it: logs changes, publishes them, and fails
 * the job if the silence lasts too long. Only on the event loop, except for {@link #silentRank} and
 * {@link #changes}.
 */
final class Liveness {
  private static final Logger LOG = LoggerFactory.getLogger(Liveness.class);

  private final TcpBootstrap bootstrap;
  private final Duration limit;
  private final Sinks.Many<OptionalInt> changes =
      Sinks.many().replay().latestOrDefault(OptionalInt.empty());
  private long sinceNanos;
  private volatile int silent = FluxCclException.NO_RANK;

  /**
   * Creates the state of a job in which no rank is silent.
   *
   * @param limit how long a rank may be silent before the job fails; zero for no limit
   */
  Liveness(TcpBootstrap bootstrap, Duration limit) {
    this.bootstrap = bootstrap;
    this.limit = limit;
  }

  /** {@link Bootstrap#unresponsiveRank}. Any thread. */
  OptionalInt silentRank() {
    int rank = silent;
    return rank < 0 ? OptionalInt.empty() : OptionalInt.of(rank);
  }

  /** {@link Bootstrap#silence}. Any thread. */
  Flux<OptionalInt> changes() {
    return changes.asFlux();
  }

  /**
   * Records which rank is silent, or {@link FluxCclException#NO_RANK}.
   *
   * @param noLaterNanos the latest time at which its silence can have begun
   */
  void set(int rank, long noLaterNanos) {
    int before = silent;
    if (rank == before) {
      return;
    }
    silent = rank;
    sinceNanos = noLaterNanos;
    if (rank >= 0) {
      LOG.warn("{}: rank {} answers no heartbeat", bootstrap.describe(), rank);
    } else {
      // It answers again, or has ended.
      LOG.info("{}: rank {} is no longer silent", bootstrap.describe(), before);
    }
    changes.tryEmitNext(silentRank());
  }

  /** Fails the job if a rank has been silent for longer than the limit. */
  void check() {
    int rank = silent;
    if (rank >= 0 && !limit.isZero() && System.nanoTime() - sinceNanos > limit.toNanos()) {
      bootstrap.abort(
          Timeout.of(rank, "rank %s has answered no heartbeat for %s ms", rank, limit.toMillis()));
    }
  }
}
