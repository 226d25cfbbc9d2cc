// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.concurrent.RankLog;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Sinks;

/**
 * Tracks the silent ranks of the job, as this rank knows them: logs and publishes changes. Only on
 * the event loop, except for {@link #silentRanks} and {@link #changes}.
 */
final class Liveness {
  private static final Logger LOG = LoggerFactory.getLogger(Liveness.class);

  private final AbstractBootstrap bootstrap;
  private final Sinks.Many<OptionalInt> changes =
      Sinks.many().replay().latestOrDefault(OptionalInt.empty());

  /** For each silent rank, the latest time at which its silence can have begun. */
  private final Map<Integer, Long> sinceNanos = new HashMap<>();

  private volatile List<Integer> silent = List.of();

  /** Creates the state of a job in which no rank is silent. */
  Liveness(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
  }

  /** {@link Bootstrap#silentRanks}. Any thread. */
  List<Integer> silentRanks() {
    return silent;
  }

  /** Returns the silent ranks and for how long each is silent at least, in ns. */
  Map<Integer, Long> silentNanos() {
    long now = System.nanoTime();
    Map<Integer, Long> nanos = new HashMap<>();
    silent.forEach(rank -> nanos.put(rank, now - sinceNanos.get(rank)));
    return nanos;
  }

  /** {@link Bootstrap#silence}. Any thread. */
  Flux<OptionalInt> changes() {
    return changes.asFlux().distinctUntilChanged();
  }

  /**
   * Records which ranks are silent.
   *
   * @param noLaterNanos the latest time at which a silence that is new can have begun
   */
  void set(List<Integer> ranks, long noLaterNanos) {
    List<Integer> before = silent;
    if (ranks.equals(before)) {
      return;
    }
    silent = List.copyOf(ranks);
    Set<Integer> now = Set.copyOf(ranks); // there may be a thousand
    sinceNanos.keySet().retainAll(now);
    for (int rank : ranks) {
      if (sinceNanos.putIfAbsent(rank, noLaterNanos) == null) {
        String who = bootstrap.describe();
        RankLog.line(
            bootstrap.rank(), () -> LOG.warn("{}: rank {} answers no heartbeat", who, rank));
      }
    }
    for (int rank : before) {
      if (!now.contains(rank)) {
        // It answers again, or has ended.
        String who = bootstrap.describe();
        RankLog.line(
            bootstrap.rank(), () -> LOG.info("{}: rank {} is no longer silent", who, rank));
      }
    }
    changes.tryEmitNext(bootstrap.unresponsiveRank());
  }
}
