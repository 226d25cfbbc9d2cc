// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.collective.Collective;
import io.fluxccl.trace.CallListener;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Outcome;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.DistributionSummary;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;

/** {@link GroupMeters} of the calls of one group, while it works. Thread-safe. */
final class CallMeters implements CallListener, AutoCloseable {
  private static final int KINDS = 256;

  /** The upper limits of the classes of sizes, in bytes, and their names. */
  private static final long[] LIMITS = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};

  private static final List<String> SIZES = List.of("4K", "64K", "1M", "16M", "256M", "more");

  private final MeterRegistry registry;
  private final Iterable<Tag> tags;
  private final FlightRecorder recorder;
  private final int nRanks;

  /** By kind and class of sizes; made with the first call of both. */
  private final AtomicReferenceArray<Meters> meters =
      new AtomicReferenceArray<>(KINDS * SIZES.size());

  private record Meters(Timer time, Counter bytes, DistributionSummary bandwidth, double factor) {}

  CallMeters(MeterRegistry registry, Iterable<Tag> tags, RankGroup group) {
    this.registry = registry;
    this.tags = tags;
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
