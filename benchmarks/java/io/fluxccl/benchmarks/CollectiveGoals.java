// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import java.util.Map;
import java.util.OptionalDouble;

/** At most which share of NCCL's time a collective should take, for 16-bit floats in graphs. */
final class CollectiveGoals {
  private static final long KIB = 1 << 10;
  private static final long MIB = 1 << 20;
  private static final long[] SIZES = {
    KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB
  };

  private static final double NONE = Double.NaN;

  private static final Map<String, double[]> EIGHT =
      Map.of(
          "all-reduce", new double[] {.18, .21, .24, .29, .39, .57, .86, 1.00, 1.00, .97},
          "all-gather", new double[] {.24, .26, .24, .27, .40, .60, .84, 1.00, .98, .96},
          "reduce-scatter", new double[] {.24, .26, .27, .29, .45, .60, .77, .97, 1.00, .97},
          "all-to-all", new double[] {.35, .36, .37, .40, .46, .60, .92, .95, .95, .92},
          "send-receive", new double[] {.55, NONE, NONE, NONE, .36, NONE, .46, NONE, NONE, 1.00});

  private static final Map<String, double[]> TWO =
      Map.of("all-reduce", new double[] {.38, NONE, .38, .41, .44, .50, .76, .90, NONE, .93});

  private CollectiveGoals() {}

  /** The goal; on four GPUs, to be no slower at any size. */
  static OptionalDouble of(String collective, int ranks, long bytes) {
    if (ranks == 4) {
      return OptionalDouble.of(1);
    }
    double[] goals = (ranks == 8 ? EIGHT : TWO).get(collective);
    for (int i = 0; goals != null && i < SIZES.length; i++) {
      if (SIZES[i] == bytes && !Double.isNaN(goals[i])) {
        return OptionalDouble.of(goals[i]);
      }
    }
    return OptionalDouble.empty();
  }
}
