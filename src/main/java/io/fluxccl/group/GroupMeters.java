package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import java.util.Locale;
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
 *   <li>{@code fluxccl.ranks.silent}: those of them that have answered no heartbeat for over a
 *       second
 *   <li>{@code fluxccl.generation}: the number of the last generation
 *   <li>{@code fluxccl.failures}: groups that failed, by the {@code code} of the failure
 * </ul>
 */
public final class GroupMeters {
  private static final String FAILURES = "fluxccl.failures";

  private final MeterRegistry registry;
  private final Iterable<Tag> tags;
  private volatile RankGroup current;
  private volatile long generation;

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
  public RankGroup follow(RankGroup group) {
    current = group;
    generation = group.generation().number();
    group.communicator().failed().thenAccept(reason -> ended(group, reason));
    return group;
  }

  private void ended(RankGroup group, FluxCclException reason) {
    if (current == group) {
      current = null;
    }
    if (!group.communicator().isClosed()) {
      String code = reason.code().name().toLowerCase(Locale.ROOT);
      registry.counter(FAILURES, Tags.concat(tags, "code", code)).increment();
    }
  }

  private double ranks() {
    RankGroup group = current;
    return group == null ? 0 : group.nRanks();
  }

  private double silent() {
    RankGroup group = current;
    return group == null ? 0 : group.communicator().bootstrap().silentRanks().size();
  }
}
