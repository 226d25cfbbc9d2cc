// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;

/** The order in which an algorithm combines the values of the ranks. */
@Experimental
public enum ReductionOrder {
  /** Rank order, rounded once at the end: the same bits as by any other such algorithm. */
  OF_RANKS,
  /**
   * An order of its own, the same for every element of every call: where this algorithm is always
   * used, results are reproducible.
   */
  FIXED,
  /** An order that depends on the size of the call, or the element's place in it. */
  VARYING
}
