package io.fluxccl.collective.host;

/** How bytes are cut: in whole cache lines, so that no two threads or ranks write one line. */
final class Lines {
  private static final long LINE = PipeDescriptor.CACHE_LINE;

  private Lines() {}

  /** A length rounded up to whole lines; elements of all types fit into these. */
  static long roundUp(long bytes) {
    return bytes + LINE - 1 & -LINE;
  }

  /** Where part i of n equal parts begins; {@code bytes} from the end of the last on. */
  static long begin(long bytes, int parts, int part) {
    return Math.min(bytes, roundUp((bytes + parts - 1) / parts) * part);
  }
}
