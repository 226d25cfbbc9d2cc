// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
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

  static final int WARP_SIZE = 32;
  static final int MAX_WARPS = MAX_THREADS / WARP_SIZE;

  /** Warps of a block while there are blocks for all warps. */
  static final int FEW_WARPS = 4;

  /** Warps of a small block. Twice {@link #SMALL_PER_BLOCK} of them fit on a multiprocessor. */
  static final int WARPS_OF_SMALL = 4;

  /** Small blocks that take the room of a block of {@link #MAX_THREADS}. */
  static final int SMALL_PER_BLOCK = 3;

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

  /** Enqueues a kernel; see {@link #forBlocks}. */
  void launch(DeviceStream stream, CudaKernel kernel, int blocks, int warps, KernelArgs args) {
    stream.launch(forBlocks(kernel, blocks), blocks, warps * WARP_SIZE, args);
  }

  /** Returns the most small blocks of a launch. */
  int smallBlocks() {
    return SMALL_PER_BLOCK * maxBlocks;
  }

  /** Returns the number of small blocks for some units of work of a warp. */
  int smallBlocksFor(long units) {
    long wanted = (units + WARPS_OF_SMALL - 1) / WARPS_OF_SMALL;
    return (int) Math.max(1, Math.min(smallBlocks(), wanted));
  }

  /** Returns the kernel for a launch with this number of small blocks; see {@link #forBlocks}. */
  CudaKernel forSmallBlocks(CudaKernel kernel, int blocks) {
    return forBlocks(kernel, (blocks + SMALL_PER_BLOCK - 1) / SMALL_PER_BLOCK);
  }

  /** Returns the number of blocks for some units of work, at most the limit of the grid. */
  int blocksFor(long units, int unitsPerBlock) {
    long wanted = (units + unitsPerBlock - 1) / unitsPerBlock;
    return (int) Math.max(1, Math.min(maxBlocks, wanted));
  }

  /**
   * Returns how many warps each of some blocks needs for one row a warp.
   *
   * @param most the limit
   */
  static int warpsFor(long rows, int blocks, int most) {
    int warps = FEW_WARPS;
    while (warps < most && (long) warps * blocks < rows) {
      warps *= 2;
    }
    return warps;
  }

  /** Returns the warps of each of some blocks that share the rows of packets. */
  static int warpsFor(long rows, int blocks) {
    return (int) Math.max(1, Math.min(MAX_WARPS, (rows + blocks - 1) / blocks));
  }
}
