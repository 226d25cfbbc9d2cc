package io.fluxccl.collective.cuda;

import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.cuda.CudaKernel;

/**
 * How large a kernel may be. Blocks wait for the same blocks of all ranks, so those of all ranks of
 * a process that share a GPU must fit on it at once, and those of two lanes; and every rank must
 * decide alike, out of what all of them know.
 *
 * @param maxBlocks blocks of at most {@link #MAX_THREADS} threads that a rank may launch, 1 or more
 */
record GpuGrid(int maxBlocks) {
  /**
   * Threads of a block. Kernels are compiled so that two such blocks fit on a multiprocessor, by
   * their registers and, up to {@link #MAX_SHARED_BYTES}, by their shared memory: one for each of
   * two lanes.
   */
  static final int MAX_THREADS = 512;

  /** Dynamic shared memory of a block of which two fit on a multiprocessor of compute 9.0. */
  static final int MAX_SHARED_BYTES = 104 << 10;

  /** For the ranks of a lane. */
  static GpuGrid of(RankTopology topology) {
    int share = topology.multiprocessors() / topology.ranksPerGpu();
    return new GpuGrid(Math.max(1, Math.min(MappedPeers.MAX_BLOCKS, share)));
  }

  /**
   * So many blocks a launch may have that begins before the one before it has ended, because both
   * together then take no more room than one may have. 0 where there is no such launch.
   */
  int overlapping() {
    return maxBlocks / 2;
  }

  /** The kernel as it is launched with so many blocks. */
  CudaKernel forBlocks(CudaKernel kernel, int blocks) {
    return blocks <= overlapping() ? kernel.overlapping() : kernel;
  }

  /** As many blocks as that many units of work keep busy, as far as there may be so many. */
  int blocksFor(long units, int unitsPerBlock) {
    long wanted = (units + unitsPerBlock - 1) / unitsPerBlock;
    return (int) Math.max(1, Math.min(maxBlocks, wanted));
  }
}
