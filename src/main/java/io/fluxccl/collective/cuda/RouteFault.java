// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.InvalidUsage;

/** Errors that kernels find in values that they read from the device: {@code routing.cuh}. */
enum RouteFault {
  NONE("none %d"),
  COUNT("all-to-all-v: send count=%d is not within 0 and the bound of the call"),
  RANGE("all-to-all-v: send offset=%d and its count lie outside of the input"),
  ROOM("all-to-all-v: it sends %d elements, for which the output of rank %d has no room"),
  EXPERT("dispatch: id=%d is neither an expert nor -1"),
  CAPACITY("dispatch: it would receive %d tokens, more than its capacity"),
  ROW("combine: row=%d is neither a row of the input nor -1");

  private static final int KIND_SHIFT = 56;
  private static final int RANK_SHIFT = 48;

  private final String text;

  RouteFault(String text) {
    this.text = text;
  }

  /**
   * Returns the error that a word of a kernel means, or null if it is 0.
   *
   * @param word written by {@code RouteArea::report}
   * @param rank this rank
   */
  static InvalidUsage decode(long word, int rank) {
    if (word == 0) {
      return null;
    }
    RouteFault kind = values()[(int) (word >>> KIND_SHIFT)];
    long value = word << Long.SIZE - RANK_SHIFT >> Long.SIZE - RANK_SHIFT;
    // A count may have any value; ids and rows are signed 32-bit values.
    boolean isInt = kind == EXPERT || kind == ROW;
    return InvalidUsage.of(
        "rank %d, " + kind.text + "; nothing was written beyond a buffer",
        word >>> RANK_SHIFT & 0xff,
        isInt ? (int) value : value,
        rank);
  }
}
