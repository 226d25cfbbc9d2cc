// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.device.DeviceStream;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.function.ToDoubleFunction;

/**
 * An algorithm of {@link MappedGpuSet}: a row of the tables of {@link Exchanges}, {@link
 * Reductions} and {@link Routes}.
 *
 * @param name {@link CollectiveAlgorithm#name}
 * @param traits what distinguishes it from an algorithm that is exact and works over any link
 * @param supported {@link CollectiveAlgorithm#supports}
 * @param micros {@link CollectiveAlgorithm#estimate}
 * @param launch {@link CollectiveAlgorithm#enqueue}
 */
record GpuAlgorithm(
    String name,
    Set<Trait> traits,
    Predicate<BoundCall> supported,
    ToDoubleFunction<BoundCall> micros,
    BiConsumer<DeviceStream, BoundCall> launch)
    implements CollectiveAlgorithm {
  /** Properties of algorithms. */
  enum Trait {
    /** {@link CollectiveAlgorithm#needsNvlink}. */
    NVLINK,
    /** {@link CollectiveAlgorithm#usesCopyEngines}. */
    COPY_ENGINES,
    /** {@link CollectiveAlgorithm#isRouted}. */
    ROUTED,
    /** Not {@link CollectiveAlgorithm#isExact}. */
    INEXACT,
    /** Combines values in the order of the ranks. */
    ORDERED
  }

  @Override
  public boolean isRouted() {
    return traits.contains(Trait.ROUTED);
  }

  @Override
  public boolean isExact() {
    return !traits.contains(Trait.INEXACT);
  }

  @Override
  public boolean needsNvlink() {
    return traits.contains(Trait.NVLINK);
  }

  @Override
  public boolean usesCopyEngines() {
    return traits.contains(Trait.COPY_ENGINES);
  }

  @Override
  public ReductionOrder order(BoundCall call) {
    return traits.contains(Trait.ORDERED) ? ReductionOrder.OF_RANKS : ReductionOrder.VARYING;
  }

  @Override
  public boolean supports(BoundCall call) {
    return supported.test(call);
  }

  @Override
  public double estimate(BoundCall call) {
    return micros.applyAsDouble(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    launch.accept(stream, call);
  }

  // Each call searches for its algorithm among all of a lane, so this compares nothing else.
  @Override
  public boolean equals(Object other) {
    return this == other;
  }

  @Override
  public int hashCode() {
    return name.hashCode();
  }
}
