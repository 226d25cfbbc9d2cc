// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.AbstractPinnedBuffer;

/**
 * Page-locked memory of the host that host threads and all GPUs of this process reach; reads by a
 * GPU cross PCIe each time. Two cache lines apart from everything else.
 */
public final class CudaPinnedBuffer extends AbstractPinnedBuffer {
  private final PinnedBlock block;
  private final long deviceAddress;

  /** Takes over one user of the block. */
  CudaPinnedBuffer(CudaDevice device, PinnedBlock block, long offset, int size) {
    super(device, block.view(offset, size));
    this.block = block;
    this.deviceAddress = block.deviceAddress() + offset;
  }

  @Override
  public long deviceAddress() {
    return deviceAddress;
  }

  @Override
  protected void release() {
    block.release();
  }

  /** Releases it now: for callers that know that nothing uses it. */
  void closeNow() {
    closeOnce();
  }

  @Override
  public String toString() {
    return "CudaPinnedBuffer(size=" + size() + ", in " + block + ")";
  }
}
