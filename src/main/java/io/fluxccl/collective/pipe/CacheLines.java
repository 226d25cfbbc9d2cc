// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

/** Cuts bytes at cache lines, so that no two threads or ranks write the same line. */
public final class CacheLines {
  /** Bytes of a cache line. */
  public static final int LENGTH = 64;

  private CacheLines() {}

  /** Returns a length rounded up to whole cache lines, which hold whole elements of every type. */
  public static long roundUp(long bytes) {
    return bytes + LENGTH - 1 & -LENGTH;
  }

  /** Returns where part i of n equal parts begins; the total length for part n and later ones. */
  public static long begin(long bytes, int parts, int part) {
    return Math.min(bytes, roundUp((bytes + parts - 1) / parts) * part);
  }
}
