package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.netty.util.concurrent.ScheduledFuture;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;

/** Knows which rank answers no heartbeat. On the event loop, but for {@link #unresponsiveRank}. */
final class HeartbeatMonitor {
  private final TcpBootstrap bootstrap;
  private final Clock clock;
  private ControlConnection control;
  private int rootHost = FluxCclException.NO_RANK;
  private ScheduledFuture<?> ticks;
  private boolean rootGone;
  private List<Integer> silent = List.of();
  private volatile int unresponsive = FluxCclException.NO_RANK;

  HeartbeatMonitor(TcpBootstrap bootstrap, Duration interval) {
    this.bootstrap = bootstrap;
    this.clock = new Clock(interval);
  }

  /**
   * Begins to watch the root.
   *
   * @param hostOfRoot the rank whose process hosts it, or -1
   */
  void start(ControlConnection connection, int hostOfRoot) {
    control = connection;
    rootHost = hostOfRoot;
    long nanos = clock.intervalNanos();
    ticks = bootstrap.loop.scheduleAtFixedRate(this::tick, nanos, nanos, TimeUnit.NANOSECONDS);
  }

  void stop() {
    if (ticks != null) {
      ticks.cancel(false);
    }
  }

  /** Learns from the root which ranks are silent. */
  void silent(List<Integer> ranks) {
    silent = ranks;
    tick();
  }

  /** Learns that the root is gone, which alone knows of silent ranks. */
  void rootGone() {
    rootGone = true;
    silent = List.of();
    unresponsive = FluxCclException.NO_RANK;
  }

  private void tick() {
    if (control == null) {
      return; // the root has not said yet that all ranks have registered
    }
    if (clock.stalled()) {
      control.excuseSilence();
    }
    boolean rootSilent = !rootGone && control.isSilentSince(clock.silenceLimit());
    unresponsive =
        rootSilent && rootHost >= 0 && rootHost != bootstrap.rank()
            ? rootHost
            : silent.stream()
                .filter(each -> each != bootstrap.rank() && !bootstrap.hasDeparted(each))
                .findFirst()
                .orElse(FluxCclException.NO_RANK);
  }

  /** {@link Bootstrap#unresponsiveRank}. Any thread. */
  OptionalInt unresponsiveRank() {
    int rank = unresponsive;
    return rank < 0 ? OptionalInt.empty() : OptionalInt.of(rank);
  }

  /** Tells the silence of others from a standstill of this process. Only on the event loop. */
  static final class Clock {
    private static final long MIN_SILENCE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final long intervalNanos;
    private long lastTickNanos = System.nanoTime();

    Clock(Duration interval) {
      intervalNanos = interval.toNanos();
    }

    long intervalNanos() {
      return intervalNanos;
    }

    /** Called once an interval: whether this process itself stood still since the last call. */
    boolean stalled() {
      long now = System.nanoTime();
      boolean stalled = now - lastTickNanos > 2 * intervalNanos + MIN_SILENCE_NANOS / 4;
      lastTickNanos = now;
      return stalled;
    }

    /** Returns the moment since which a rank must have been heard of, else it is silent. */
    long silenceLimit() {
      return System.nanoTime() - Math.max(MIN_SILENCE_NANOS, 5 * intervalNanos);
    }
  }
}
