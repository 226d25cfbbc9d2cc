// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.Locale;

/**
 * The operations by which a reduction combines the ranks' values. Integers wrap around. A NaN
 * result is NaN on every rank, but on the host device its sign and payload may differ between
 * ranks.
 *
 * <p>Floating-point values are combined in rank order and rounded once, within a host by all
 * algorithms but the quantized ones, and between hosts by {@code all-pairs}. The algorithms {@code
 * ring}, {@code hierarchical} and {@code collnet} combine in other orders; {@code
 * CollectivesOptions.withReproducible} excludes them.
 */
public enum ReduceOp {
  /** Their sum. */
  SUM,
  /** Their product. */
  PROD,
  /** The smallest. */
  MIN,
  /** The largest. */
  MAX,
  /** Their sum divided by the number of ranks; integers round towards zero. */
  AVG;

  /** Returns the name in nccl-tests' notation, for example {@code sum}. */
  public String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /**
   * Returns the operation of that name.
   *
   * @param label a name in nccl-tests' notation
   * @return the operation
   * @throws InvalidUsage if there is none of that name; the message lists those there are
   */
  public static ReduceOp ofLabel(String label) {
    return Text.choose("op", label, values(), ReduceOp::label);
  }
}
