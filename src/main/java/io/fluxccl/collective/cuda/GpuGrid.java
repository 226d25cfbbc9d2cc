// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.cuda.CudaKernel;

/**
 * The limits of a launch. A block waits for the same block of every rank. So the blocks of all
 * ranks of a process that share a GPU must fit on it at once, for two lanes. Every rank computes
 * the same limits, from what all of them know.
 *
 * @param maxBlocks the most blocks of at most {@link #MAX_THREADS} threads in a launch, 1 or more
 * @param shared whether a GPU has several ranks of a process
 */
record GpuGrid(int maxBlocks, boolean shared) {
  /**
   * The most threads of a block. Kernels are compiled so that the registers of two such blocks fit
   * on a multiprocessor: one for each of two lanes. So does their shared memory, up to 104 KiB each
   * on compute 9.0.
   */
  static final int MAX_THREADS = 512;

  /** Returns the grid for the ranks of a lane. */
  static GpuGrid of(RankTopology topology) {
    int most = Math.min(MappedPeers.MAX_BLOCKS, topology.mostBlocks(1));
    return new GpuGrid(most, topology.ranksPerGpu() > 1);
  }

  /**
   * Returns the most blocks of a launch that may begin before the previous launch has ended.
   * Together they use no more blocks than one launch may. 0 if no launch may overlap.
   */
  int overlapping() {
    return maxBlocks / 2;
  }

  /**
   * Returns the most blocks of a short exchange: as many as may overlap, at least two if the grid
   * has them.
   */
  int shortBlocks() {
    return Math.max(Math.min(2, maxBlocks), overlapping());
  }

  /**
   * Returns the kernel for a launch with this number of blocks. If ranks share a GPU, launches do
   * not overlap: an early launch would occupy multiprocessors that another rank's kernel needs.
   */
  CudaKernel forBlocks(CudaKernel kernel, int blocks) {
    return !shared && blocks <= overlapping() ? kernel.overlapping() : kernel;
  }

  /** Returns the number of blocks for some units of work, at most the limit of the grid. */
  int blocksFor(long units, int unitsPerBlock) {
    long wanted = (units + unitsPerBlock - 1) / unitsPerBlock;
    return (int) Math.max(1, Math.min(maxBlocks, wanted));
  }
}
