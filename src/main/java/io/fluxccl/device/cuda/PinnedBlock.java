// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.UseCount;
import jcuda.Pointer;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Page-locked, zeroed memory of the host that all GPUs of this process can reach. Freed with its
 * last user, on a thread of the library.
 */
final class PinnedBlock extends UseCount {
  private static final int FLAGS =
      JCudaDriver.CU_MEMHOSTALLOC_PORTABLE | JCudaDriver.CU_MEMHOSTALLOC_DEVICEMAP;

  private final PrimaryContext context;
  private final Pointer pointer;
  final long deviceAddress;
  private final int size;

  private PinnedBlock(PrimaryContext context, Pointer pointer, long deviceAddress, int size) {
    this.context = context;
    this.pointer = pointer;
    this.deviceAddress = deviceAddress;
    this.size = size;
  }

  /** Allocates a block with one user, which keeps the context. */
  static PinnedBlock allocate(PrimaryContext context, int size) {
    context.retain();
    return Closing.onFailure(context::release, () -> allocateUncounted(context, size));
  }

  /** Allocates a block of the context itself: freed by {@link #free}, never by its last user. */
  static PinnedBlock allocateUncounted(PrimaryContext context, int size) {
    context.makeCurrent();
    Pointer pointer = new Pointer();
    context.check(JCudaDriver.cuMemHostAlloc(pointer, size, FLAGS), "cuMemHostAlloc(" + size + ")");
    CudaPointer device = new CudaPointer();
    int result = JCudaDriver.cuMemHostGetDevicePointer(device, pointer, 0);
    if (result != CUresult.CUDA_SUCCESS) {
      JCudaDriver.cuMemFreeHost(pointer);
      throw CudaError.of(result, context.ordinal, "cuMemHostGetDevicePointer");
    }
    PinnedBlock block = new PinnedBlock(context, pointer, CudaPointer.valueOf(device), size);
    block.view(0, size).setMemory(0, size, (byte) 0);
    return block;
  }

  @Override
  protected void lastUserLeft() {
    context.freeLater(this::free);
  }

  /** Frees the memory. May wait for running kernels. */
  void free() {
    context.makeCurrent();
    context.check(JCudaDriver.cuMemFreeHost(pointer), "cuMemFreeHost");
  }

  /**
   * Returns a view of a part for host threads. The caller must hold a use while it uses the view.
   */
  UnsafeBuffer view(long offset, int length) {
    if (offset < 0 || length < 0 || offset > size - length) {
      throw InvalidUsage.of("offset=%s length=%s in %s", offset, length, this);
    }
    return new UnsafeBuffer(CudaPointer.valueOf(pointer) + offset, length);
  }

  @Override
  public String toString() {
    return Text.of("PinnedBlock(%s bytes at 0x%x)", size, CudaPointer.valueOf(pointer));
  }
}
