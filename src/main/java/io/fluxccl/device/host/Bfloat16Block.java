package io.fluxccl.device.host;

/** Elements that are the upper half of a float. */
final class Bfloat16Block extends HalfBlock {
  Bfloat16Block() {
    super(1);
  }

  @Override
  void unpackEven(int[] pairs, int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      bits[i] = pairs[i] << 16;
    }
  }

  @Override
  void unpackOdd(int[] pairs, int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      bits[i] = pairs[i] & 0xffff0000;
    }
  }

  /** As {@link HalfFloat#toBfloat16}, without branches. */
  @Override
  void round(float[] values, int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      int x = bits[i];
      int notNumber = (0x7f800000 - (x & 0x7fffffff)) >> 31;
      int rounded = x + 0x7fff + (x >>> 16 & 1);
      bits[i] = (rounded & ~notNumber | (x | 0x400000) & notNumber) >>> 16;
    }
  }
}
