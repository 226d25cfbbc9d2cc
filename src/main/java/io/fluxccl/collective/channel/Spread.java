package io.fluxccl.collective.channel;

/**
 * How the bytes that a rank gives to, or gets from, the others are spread over them.
 *
 * @param total bytes of all
 * @param stride bytes of each but the last ones, one behind the other; 0: each has all of them
 * @param only the one rank that has any; {@link #ANY} for all
 * @param except a rank that has none; {@link #ANY} for nobody
 */
record Spread(long total, long stride, int only, int except) {
  static final int ANY = -1;

  /** Of a rank that takes no part. */
  static final long NONE = -1;

  static final Spread NOTHING = new Spread(0, 0, Integer.MAX_VALUE, ANY);

  /** The same bytes for everybody. */
  static Spread whole(long bytes) {
    return new Spread(bytes, 0, ANY, ANY);
  }

  /** One part for each. */
  static Spread parts(long total, long stride) {
    return new Spread(total, stride, ANY, ANY);
  }

  Spread only(int rank) {
    return new Spread(total, stride, rank, except);
  }

  Spread except(int rank) {
    return new Spread(total, stride, only, rank);
  }

  long offset(int peer) {
    return Math.min(total, stride * peer);
  }

  /** Bytes, or {@link #NONE}. */
  long bytes(int peer) {
    if (only != ANY && peer != only || peer == except) {
      return NONE;
    }
    return stride == 0 ? total : Math.min(stride, total - offset(peer));
  }
}
