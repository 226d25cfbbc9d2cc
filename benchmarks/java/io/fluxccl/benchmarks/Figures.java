// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import java.util.Arrays;
import java.util.function.Consumer;

/** Receives the figures of a section. */
final class Figures {
  private final String section;
  private final Consumer<Figure> sink;

  Figures(String section, Consumer<Figure> sink) {
    this.section = section;
    this.sink = sink;
  }

  /** A number without a goal. */
  void add(String what, double value, String unit) {
    sink.accept(new Figure(section, what, value, unit, "", ""));
  }

  /** A number that should not be less than a bound. */
  void addAtLeast(String what, double value, String unit, double bound) {
    sink.accept(new Figure(section, what, value, unit, ">= " + bound, ""));
  }

  /** A number that should not be more than a bound. */
  void addAtMost(String what, double value, String unit, double bound) {
    sink.accept(new Figure(section, what, value, unit, "<= " + bound, ""));
  }

  /** The value below which a share of the samples lies; sorts them. */
  static double percentile(double[] samples, double share) {
    Arrays.sort(samples);
    return samples[(int) Math.min(samples.length - 1, Math.floor(share * samples.length))];
  }
}
