// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import org.agrona.UnsafeApi;

/**
 * 8-bit floating-point elements, combined as floats and rounded once, at the end. Tables convert
 * both ways. The index into the table of rounded values is the upper half of the float, with its
 * last bit set if the lower half is not zero. Its 7 bits of fraction are at least two more than the
 * result's, so this rounds like the whole float.
 */
final class Float8Block extends FloatBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(byte[].class);
  private static final long INT_BASE = UnsafeApi.arrayBaseOffset(int[].class);
  private static final long FLOAT_BASE = UnsafeApi.arrayBaseOffset(float[].class);
  private static final byte[][] ROUNDED = new byte[Float8.values().length][];

  private final float[] values;
  private final byte[] rounded;
  private final byte[] bytes = new byte[LENGTH];
  private final int[] bits = new int[LENGTH];

  Float8Block(Float8 format) {
    this.values = format.table();
    this.rounded = rounded(format);
  }

  private static synchronized byte[] rounded(Float8 format) {
    if (ROUNDED[format.ordinal()] == null) {
      byte[] table = new byte[0x10000];
      for (int upper = 0; upper < table.length; upper++) {
        table[upper] = format.fromFloat(Float.intBitsToFloat(upper << 16));
      }
      ROUNDED[format.ordinal()] = table;
    }
    return ROUNDED[format.ordinal()];
  }

  @Override
  void load(long address, int count) {
    read(address, a, count);
  }

  @Override
  void loadSource(long address, int count) {
    read(address, b, count);
  }

  private void read(long address, float[] to, int count) {
    copyIn(bytes, BASE, address, count);
    for (int i = 0; i < count; i++) {
      to[i] = values[bytes[i] & 0xff];
    }
  }

  @Override
  void store(long address, int count) {
    UnsafeApi.copyMemory(a, FLOAT_BASE, bits, INT_BASE, (long) count * Float.BYTES);
    for (int i = 0; i < count; i++) {
      int x = bits[i];
      bytes[i] = rounded[x >>> 16 | (x & 0xffff) + 0xffff >>> 16];
    }
    copyOut(bytes, BASE, address, count);
  }
}
