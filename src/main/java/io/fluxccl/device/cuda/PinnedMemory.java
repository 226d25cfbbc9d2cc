package io.fluxccl.device.cuda;

import jcuda.Pointer;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
import org.agrona.concurrent.UnsafeBuffer;

/** Page-locked, zeroed memory of the host that all GPUs of this process can reach; not counted. */
final class PinnedMemory {
  private static final int FLAGS =
      JCudaDriver.CU_MEMHOSTALLOC_PORTABLE | JCudaDriver.CU_MEMHOSTALLOC_DEVICEMAP;

  private final PrimaryContext context;
  private final Pointer pointer;
  private final long address;
  private final long deviceAddress;

  private PinnedMemory(PrimaryContext context, Pointer pointer, long deviceAddress) {
    this.context = context;
    this.pointer = pointer;
    this.address = CudaPointer.valueOf(pointer);
    this.deviceAddress = deviceAddress;
  }

  static PinnedMemory allocate(PrimaryContext context, int size) {
    context.makeCurrent();
    Pointer pointer = new Pointer();
    context.check(JCudaDriver.cuMemHostAlloc(pointer, size, FLAGS), "cuMemHostAlloc(" + size + ")");
    CudaPointer device = new CudaPointer();
    int result = JCudaDriver.cuMemHostGetDevicePointer(device, pointer, 0);
    if (result != CUresult.CUDA_SUCCESS) {
      JCudaDriver.cuMemFreeHost(pointer);
      throw CudaError.of(result, context.ordinal(), "cuMemHostGetDevicePointer");
    }
    PinnedMemory memory = new PinnedMemory(context, pointer, CudaPointer.valueOf(device));
    memory.view(0, size).setMemory(0, size, (byte) 0);
    return memory;
  }

  long address() {
    return address;
  }

  long deviceAddress() {
    return deviceAddress;
  }

  /** How host threads see a part. */
  UnsafeBuffer view(int offset, int length) {
    return new UnsafeBuffer(address + offset, length);
  }

  /** May wait for running kernels. */
  void free() {
    context.makeCurrent();
    context.check(JCudaDriver.cuMemFreeHost(pointer), "cuMemFreeHost");
  }
}
