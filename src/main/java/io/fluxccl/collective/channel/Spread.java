package io.fluxccl.collective.channel;

/**
 * How the bytes that a rank gives to, or gets from, the others are spread over them.
 *
 * @param total bytes from the first to the last
 * @param stride bytes from where one's begin to where the next one's do; 0: all have the same
 * @param each bytes of each but the last ones
 * @param only the one rank that has any; {@link #ANY} for all
 * @param except a rank that has none; {@link #ANY} for nobody
 */
record Spread(long total, long stride, long each, int only, int except) {
  static final int ANY = -1;

  /** Of a rank that takes no part. */
  static final long NONE = -1;

  static final Spread NOTHING = new Spread(0, 0, 0, Integer.MAX_VALUE, ANY);

  /** The same bytes for everybody. */
  static Spread whole(long bytes) {
    return new Spread(bytes, 0, bytes, ANY, ANY);
  }

  /** One part for each. */
  static Spread parts(long total, long stride) {
    return new Spread(total, stride, stride, ANY, ANY);
  }

  /** As many bytes for each, a stride apart. */
  static Spread apart(long each, long stride, int nRanks) {
    return new Spread((nRanks - 1) * stride + each, stride, each, ANY, ANY);
  }

  Spread only(int rank) {
    return new Spread(total, stride, each, rank, except);
  }

  Spread except(int rank) {
    return new Spread(total, stride, each, only, rank);
  }

  long offset(int peer) {
    return Math.min(total, stride * peer);
  }

  /** Bytes, or {@link #NONE}. */
  long bytes(int peer) {
    if (only != ANY && peer != only || peer == except) {
      return NONE;
    }
    return Math.min(each, total - offset(peer));
  }
}
