// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.KernelStruct;

/**
 * The layout of headers and slots of packets in the state of {@link RoutedSet}: the twin of {@code
 * RouteArea} in {@code routing.cuh}.
 *
 * @param nRanks the number of ranks
 * @param slotBytes bytes of a slot, for one pair of ranks
 */
record RouteArea(int nRanks, long slotBytes) {
  /** {@code sizeof(RouteArea)}. */
  static final int LENGTH = 5 * Long.BYTES;

  private static final int HEADER_BYTES = 8192;
  private static final int SETS = 2;
  private static final long FAILED_OFFSET = MappedPeers.AREAS_OFFSET;
  private static final long HEADERS_OFFSET = FAILED_OFFSET + 128;

  /** Memory of all slots, unless they get too small. */
  private static final long MOST_BYTES = 16 << 20;

  private static final long MOST_SLOT = 2 << 20;

  /** Returns the area for a number of ranks. A slot holds whole rows, so that each is aligned. */
  static RouteArea of(int nRanks) {
    long row = PacketArea.Kind.LL128.rowBytes(1);
    return new RouteArea(nRanks, Math.min(MOST_SLOT, MOST_BYTES / SETS / nRanks / row * row));
  }

  private long slotsOffset() {
    return HEADERS_OFFSET + (long) SETS * nRanks * HEADER_BYTES;
  }

  /** Returns the bytes of a state. */
  long end() {
    return slotsOffset() + SETS * nRanks * slotBytes;
  }

  /** Returns how many rows a slot holds. */
  int rows() {
    return (int) (slotBytes / PacketArea.Kind.LL128.rowBytes(1));
  }

  /** Writes the struct. */
  KernelStruct writeTo(KernelStruct target, long faultAddress) {
    return target
        .at(0)
        .putLong(FAILED_OFFSET)
        .putLong(HEADERS_OFFSET)
        .putLong(slotsOffset())
        .putLong(slotBytes)
        .putLong(faultAddress);
  }
}
