package io.fluxccl.collective;

import io.fluxccl.DataType;

/**
 * The kernels that all-reduce on mapped memory of GPUs, in the order of the sizes that they are
 * for.
 */
enum MappedKernel {
  /** Everybody sends its input to everybody as packets: one hand-over, n times the bytes. */
  ONE_SHOT("one_shot"),
  /** Packets too, but each rank reduces a chunk and sends the result: two hand-overs. */
  TWO_PHASES("two_phases"),
  /** Each rank reduces a chunk out of all buffers into all buffers, between two meetings. */
  DIRECT("direct");

  /** Up to so many bytes in one shot. */
  static final long ONE_SHOT_LIMIT = 16 << 10;

  /** Up to so many bytes as packets. */
  static final long PACKET_LIMIT = 1 << 20;

  private static final int WARP_SIZE = 32;
  private static final int PAYLOAD = 8;
  private static final int WORD = 16;

  private final String label;

  MappedKernel(String label) {
    this.label = label;
  }

  /** The kernel's name for a type of element. */
  String kernelName(DataType type) {
    return "fluxccl_all_reduce_" + label + "_" + type.label();
  }

  /** The kernel for so many bytes. */
  static MappedKernel forSize(long bytes) {
    return bytes <= ONE_SHOT_LIMIT ? ONE_SHOT : bytes <= PACKET_LIMIT ? TWO_PHASES : DIRECT;
  }

  /** Threads a block. */
  int threads(int nRanks) {
    return this == ONE_SHOT ? WARP_SIZE * nRanks : GpuGrid.MAX_THREADS;
  }

  /**
   * Blocks of a launch.
   *
   * @param bytes of the input
   * @param nRanks how many ranks
   * @param grid how many there may be
   */
  int blocks(long bytes, int nRanks, GpuGrid grid) {
    long chunk = (bytes + nRanks - 1) / nRanks;
    return switch (this) {
      case ONE_SHOT -> grid.blocksFor(bytes, WARP_SIZE * PAYLOAD);
      // The scatter has the most to do: a packet a thread, to each peer.
      case TWO_PHASES -> grid.blocksFor(chunk * (nRanks - 1), GpuGrid.MAX_THREADS * PAYLOAD);
      case DIRECT -> grid.blocksFor(chunk, GpuGrid.MAX_THREADS * WORD);
    };
  }
}
