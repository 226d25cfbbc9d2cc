// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

/**
 * Which of a launch's threads this is, and what it has for itself. Handed to {@link
 * HostKernel.Body}, used by that thread only, during that call only.
 */
public final class KernelThread {
  private final int threadIdx;
  private int blockDim = 1;
  private int blockIdx;
  private int gridDim = 1;
  private long abortAddress;
  private BlockBarrier barrier;
  private HostReduction reduction;

  KernelThread(int threadIdx) {
    this.threadIdx = threadIdx;
  }

  void begin(int gridDim, int blockDim, long abortAddress, BlockBarrier barrier) {
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

  /** Returns how many threads the block has. */
  public int blockDim() {
    return blockDim;
  }

  /** Returns the number of its block in the grid, from 0. */
  public int blockIdx() {
    return blockIdx;
  }

  /** Returns how many blocks the grid has. */
  public int gridDim() {
    return gridDim;
  }

  /**
   * Returns the address of the {@link io.fluxccl.device.AbortFlag} among the launch's arguments, or
   * 0 if there is none: what {@link SpinWait} wants.
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
   * Waits until every thread of the block that has not returned yet is here. What they wrote before
   * is visible after it.
   *
   * @return false if the launch's abort flag was set, or another thread of the block failed: return
   *     then, memory may be half done
   */
  public boolean syncThreads() {
    return barrier == null ? !SpinWait.isAborted(abortAddress) : barrier.await(abortAddress);
  }
}
