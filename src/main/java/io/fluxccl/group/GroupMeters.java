// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Outcome;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.DistributionSummary;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.ToDoubleFunction;

/**
 * Micrometer's meters of a job's health, as this process sees it. An application that uses this
 * class adds {@code io.micrometer:micrometer-core}. Thread-safe.
 *
 * <pre>{@code
 * GroupMeters meters = GroupMeters.register(registry);
 * RankGroup.generations(options).map(meters::follow)...
 * }</pre>
 *
 * <ul>
 *   <li>{@code fluxccl.ranks}: ranks of the group that works; 0 while there is none
 *   <li>{@code fluxccl.ranks.silent}: those that have answered no heartbeat for over a second
 *   <li>{@code fluxccl.generation}: the number of the last generation
 *   <li>{@code fluxccl.failures}: groups that failed, by the {@code code} of the failure
 *   <li>{@code fluxccl.calls.in.flight}: calls that are enqueued and not over, of all lanes
 *   <li>{@code fluxccl.proxy.duty}: the share of the cycles of the busiest proxy's loop that found
 *       work, since the meter was last read; 0 without a proxy
 *   <li>{@code fluxccl.calls}: the time of completed calls since their enqueueing, by {@code kind}
 *       and {@code size}: the smallest of 4K, 64K, 1M, 16M, 256M bytes that holds the call, or
 *       "more". A pipeline is one call
 *   <li>{@code fluxccl.calls.bytes}: their bytes, by the same tags
 *   <li>{@code fluxccl.calls.bus.bandwidth}: their bandwidth as nccl-tests defines it, in bytes a
 *       second, by the same tags
 * </ul>
 *
 * <p>The meters of calls are derived from the flight recorder's entries: there are none if it is
 * off.
 */
public final class GroupMeters {
  private static final String FAILURES = "fluxccl.failures";

  private final MeterRegistry registry;
  private final Iterable<Tag> tags;
  private volatile RankGroup current;
  private volatile long generation;
  private volatile CallMeters calls;

  private GroupMeters(MeterRegistry registry, Iterable<Tag> tags) {
    this.registry = registry;
    this.tags = tags;
  }

  /**
   * Registers the meters of a job. They show no group yet.
   *
   * @param registry of the application
   * @param tags of all meters, keys and values in turn, for example the job's name
   */
  public static GroupMeters register(MeterRegistry registry, String... tags) {
    InvalidUsage.requireNonNull(registry, "GroupMeters.register", "registry");
    GroupMeters meters = new GroupMeters(registry, Tags.of(tags));
    meters.gauge("fluxccl.ranks", "Ranks of the group that works", GroupMeters::ranks);
    meters.gauge("fluxccl.ranks.silent", "Ranks that answer no heartbeat", GroupMeters::silent);
    meters.gauge("fluxccl.generation", "The last generation", each -> each.generation);
    meters.gauge("fluxccl.proxy.duty", "Cycles of a proxy that find work", GroupMeters::duty);
    meters.gauge("fluxccl.calls.in.flight", "Calls that are not over", GroupMeters::inFlight);
    return meters;
  }

  private void gauge(String name, String description, ToDoubleFunction<GroupMeters> value) {
    Gauge.builder(name, this, value)
        .description(description)
        .tags(tags)
        .strongReference(true)
        .register(registry);
  }

  /**
   * Shows a group from now on, until it fails or is closed, or another one is shown.
   *
   * @return the group
   */
  public synchronized RankGroup follow(RankGroup group) {
    ignoreCalls();
    current = group;
    calls = new CallMeters(group);
    generation = group.generation().number();
    group.communicator().failed().thenAccept(reason -> ended(group, reason));
    return group;
  }

  // Synchronized: another thread may follow the next group meanwhile.
  private synchronized void ended(RankGroup group, FluxCclException reason) {
    if (current == group) {
      ignoreCalls();
      current = null;
    }
    if (!group.communicator().isClosed()) {
      String code = reason.code().name().toLowerCase(Locale.ROOT);
      registry.counter(FAILURES, Tags.concat(tags, "code", code)).increment();
    }
  }

  private synchronized void ignoreCalls() {
    if (calls != null) {
      calls.close();
      calls = null;
    }
  }

  private double inFlight() {
    RankGroup group = current;
    return group == null ? 0 : group.communicator().recorder().inFlight();
  }

  private double duty() {
    RankGroup group = current;
    return group == null ? 0 : group.communicator().recorder().proxyDuty();
  }

  private double ranks() {
    RankGroup group = current;
    return group == null ? 0 : group.nRanks();
  }

  private double silent() {
    RankGroup group = current;
    return group == null ? 0 : group.communicator().bootstrap().silentRanks().size();
  }

  /** {@link GroupMeters} of the calls of one group, while it works. Thread-safe. */
  private final class CallMeters implements FlightRecorder.CallListener, AutoCloseable {
    private static final int KINDS = 256;

    /** The upper limits of the classes of sizes, in bytes, and their names. */
    private static final long[] LIMITS = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};

    private static final List<String> SIZES = List.of("4K", "64K", "1M", "16M", "256M", "more");

    private final FlightRecorder recorder;
    private final int nRanks;

    /** By kind and class of sizes; made with the first call of both. */
    private final AtomicReferenceArray<Meters> meters =
        new AtomicReferenceArray<>(KINDS * SIZES.size());

    private record Meters(
        Timer time, Counter bytes, DistributionSummary bandwidth, double factor) {}

    CallMeters(RankGroup group) {
      this.recorder = group.communicator().recorder();
      this.nRanks = group.nRanks();
      recorder.listen(this);
    }

    @Override
    public void ended(int kind, long bytes, long elapsedNs, Outcome outcome) {
      if (outcome != Outcome.DONE && outcome != Outcome.DETACHED) {
        return;
      }
      int size = 0;
      while (size < LIMITS.length && bytes > LIMITS[size]) {
        size++;
      }
      int at = kind * SIZES.size() + size;
      Meters known = meters.get(at);
      if (known == null) {
        known = of(recorder.name(kind), SIZES.get(size));
        meters.set(at, known); // another thread may have made the same: the registry has them once
      }
      known.time.record(elapsedNs, TimeUnit.NANOSECONDS);
      known.bytes.increment(bytes);
      if (bytes > 0) {
        known.bandwidth.record(
            known.factor * bytes * TimeUnit.SECONDS.toNanos(1) / Math.max(1, elapsedNs));
      }
    }

    private Meters of(String kind, String size) {
      Tags all = Tags.concat(tags, "kind", kind, "size", size);
      double factor =
          Arrays.stream(Collective.values())
              .filter(each -> each.label().equals(kind))
              .mapToDouble(each -> each.busFactor(nRanks))
              .findFirst()
              .orElse(1);
      return new Meters(
          registry.timer("fluxccl.calls", all),
          registry.counter("fluxccl.calls.bytes", all),
          DistributionSummary.builder("fluxccl.calls.bus.bandwidth")
              .description("Bandwidth as nccl-tests defines it")
              .baseUnit("bytes/s")
              .tags(all)
              .register(registry),
          factor);
    }

    @Override
    public void close() {
      recorder.forget(this);
    }
  }
}
