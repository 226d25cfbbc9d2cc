// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.AbstractPinnedBuffer;

/**
 * Page-locked memory of the host that host threads and all GPUs of this process reach; reads by a
 * GPU cross PCIe each time. Shares no pair of cache lines with other memory.
 */
public final class CudaPinnedBuffer extends AbstractPinnedBuffer {
  /** Takes over one use of the block. */
  CudaPinnedBuffer(CudaDevice device, PinnedBlock block, long offset, int size) {
    super(device, block.view(offset, size), block.deviceAddress + offset, block::release);
  }
}
