// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.util.Random;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Kills random ranks of a soak: one, or two at once, or one and soon after that another one, while
 * the job recovers or is set up. Kills two only if another rank is left. Confined to the timer's
 * thread.
 */
final class SoakKiller {
  /** A recovery, with the start of a JVM, takes about this time. */
  private static final int HEALING_MILLIS = 2_000;

  private final RankLauncher processes;
  private final SoakSummary tally;
  private final ScheduledExecutorService timer;
  private final Random random;
  private final int ranks;
  private final int everySeconds;
  private final long untilMillis;

  SoakKiller(
      RankLauncher processes,
      SoakSummary tally,
      ScheduledExecutorService timer,
      long seed,
      int ranks,
      int everySeconds,
      long untilMillis) {
    this.processes = processes;
    this.tally = tally;
    this.timer = timer;
    this.random = new Random(seed);
    this.ranks = ranks;
    this.everySeconds = everySeconds;
    this.untilMillis = untilMillis;
  }

  void start() {
    timer.scheduleAtFixedRate(this::kill, everySeconds, everySeconds, TimeUnit.SECONDS);
  }

  /**
   * Kills ranks, but not before the first generation works, nor so late that the other ranks would
   * have ended before the replacement starts.
   */
  private void kill() {
    boolean early = tally.result().generations() == 0;
    long untilLate = untilMillis - TimeUnit.SECONDS.toMillis(everySeconds);
    if (early || System.currentTimeMillis() >= untilLate) {
      return;
    }
    int first = random.nextInt(ranks);
    // If all died, no process would know that there had been a generation.
    int second = ranks < 3 ? first : (first + 1 + random.nextInt(ranks - 1)) % ranks;
    int way = random.nextInt(3);
    processes.kill(first);
    if (way == 1 && second != first) {
      processes.kill(second);
      tally.killedTwo();
    } else if (way == 2 && second != first) {
      timer.schedule(
          () -> {
            if (System.currentTimeMillis() < untilLate && processes.kill(second)) {
              tally.killedTwo();
            }
          },
          1 + random.nextInt(HEALING_MILLIS),
          TimeUnit.MILLISECONDS);
    }
  }
}
