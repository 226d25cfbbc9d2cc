// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

/**
 * Position and private state of one thread of a launch. {@link HostKernel.Body} receives it. Only
 * that thread may use it, and only during the call.
 */
public final class KernelThread {
  private final int threadIdx;
  private int blockDim = 1;
  private int blockIdx;
  private int gridDim = 1;
  private long abortAddress;
  private BlockWorkers.Barrier barrier;
  private HostReduction reduction;

  KernelThread(int threadIdx) {
    this.threadIdx = threadIdx;
  }

  void begin(int gridDim, int blockDim, long abortAddress, BlockWorkers.Barrier barrier) {
    this.gridDim = gridDim;
    this.blockDim = blockDim;
    this.abortAddress = abortAddress;
    this.barrier = barrier;
  }

  void block(int blockIdx) {
    this.blockIdx = blockIdx;
  }

  /** Returns the number of this thread in its block, from 0. */
  public int threadIdx() {
    return threadIdx;
  }

  /** Returns the number of threads in the block. */
  public int blockDim() {
    return blockDim;
  }

  /** Returns the number of its block in the grid, from 0. */
  public int blockIdx() {
    return blockIdx;
  }

  /** Returns the number of blocks in the grid. */
  public int gridDim() {
    return gridDim;
  }

  /**
   * Returns the address of the {@link io.fluxccl.device.AbortFlag} among the launch's arguments, or
   * 0 if there is none. Pass it to {@link SpinWait}.
   */
  public long abortAddress() {
    return abortAddress;
  }

  /** Returns a reduction with scratch memory of this thread. */
  public HostReduction reduction() {
    if (reduction == null) {
      reduction = new HostReduction();
    }
    return reduction;
  }

  /**
   * Waits until all threads of the block that have not returned have called this. Their earlier
   * writes are then visible.
   *
   * @return false if the launch's abort flag is set or another thread of the block failed; then
   *     return, because memory may be incomplete
   */
  public boolean syncThreads() {
    return barrier == null ? !SpinWait.isAborted(abortAddress) : barrier.await(abortAddress);
  }
}
