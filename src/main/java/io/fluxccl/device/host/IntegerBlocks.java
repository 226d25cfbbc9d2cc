package io.fluxccl.device.host;

/**
 * Blocks of integers. Unsigned ones are compared with their highest bit inverted, which gives the
 * order of signed ones. The loops run over local copies of the fields, so that they become vector
 * code.
 */
final class IntegerBlocks {
  private IntegerBlocks() {}

  /** Integers of 8 bits. */
  static final class ByteBlock extends ReductionBlock.ArrayBlock {
    private final boolean signed;
    private final byte flip;
    final byte[] a;
    final byte[] b;

    private ByteBlock(boolean signed, byte[] a, byte[] b) {
      super(a, b, Byte.BYTES);
      this.signed = signed;
      this.flip = signed ? 0 : Byte.MIN_VALUE;
      this.a = a;
      this.b = b;
    }

    ByteBlock(boolean signed) {
      this(signed, new byte[LENGTH], new byte[LENGTH]);
    }

    @Override
    void add(int count) {
      byte[] to = a;
      byte[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int count) {
      byte[] to = a;
      byte[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void min(int count) {
      byte[] to = a;
      byte[] from = b;
      byte turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = (byte) (Math.min(to[i] ^ turned, from[i] ^ turned) ^ turned);
      }
    }

    @Override
    void max(int count) {
      byte[] to = a;
      byte[] from = b;
      byte turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = (byte) (Math.max(to[i] ^ turned, from[i] ^ turned) ^ turned);
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = (byte) ((signed ? a[i] : a[i] & 0xff) / divisor);
      }
    }
  }

  /** Integers of 32 bits. */
  static final class IntBlock extends ReductionBlock.ArrayBlock {
    private final boolean signed;
    private final int flip;
    final int[] a;
    final int[] b;

    private IntBlock(boolean signed, int[] a, int[] b) {
      super(a, b, Integer.BYTES);
      this.signed = signed;
      this.flip = signed ? 0 : Integer.MIN_VALUE;
      this.a = a;
      this.b = b;
    }

    IntBlock(boolean signed) {
      this(signed, new int[LENGTH], new int[LENGTH]);
    }

    @Override
    void add(int count) {
      int[] to = a;
      int[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int count) {
      int[] to = a;
      int[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void min(int count) {
      int[] to = a;
      int[] from = b;
      int turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i] ^ turned, from[i] ^ turned) ^ turned;
      }
    }

    @Override
    void max(int count) {
      int[] to = a;
      int[] from = b;
      int turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i] ^ turned, from[i] ^ turned) ^ turned;
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = signed ? a[i] / divisor : Integer.divideUnsigned(a[i], divisor);
      }
    }
  }

  /** Integers of 64 bits. */
  static final class LongBlock extends ReductionBlock.ArrayBlock {
    private final boolean signed;
    private final long flip;
    final long[] a;
    final long[] b;

    private LongBlock(boolean signed, long[] a, long[] b) {
      super(a, b, Long.BYTES);
      this.signed = signed;
      this.flip = signed ? 0 : Long.MIN_VALUE;
      this.a = a;
      this.b = b;
    }

    LongBlock(boolean signed) {
      this(signed, new long[LENGTH], new long[LENGTH]);
    }

    @Override
    void add(int count) {
      long[] to = a;
      long[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int count) {
      long[] to = a;
      long[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void min(int count) {
      long[] to = a;
      long[] from = b;
      long turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i] ^ turned, from[i] ^ turned) ^ turned;
      }
    }

    @Override
    void max(int count) {
      long[] to = a;
      long[] from = b;
      long turned = flip;
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i] ^ turned, from[i] ^ turned) ^ turned;
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = signed ? a[i] / divisor : Long.divideUnsigned(a[i], divisor);
      }
    }
  }
}
