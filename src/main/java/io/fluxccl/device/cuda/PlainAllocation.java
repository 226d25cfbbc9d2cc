// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.lang.invoke.VarHandle;
import jcuda.driver.CUipcMemHandle;
import jcuda.driver.JCudaDriver;

/** Memory by {@code cuMemAlloc}, which other processes map by the driver's legacy IPC handles. */
final class PlainAllocation extends CudaAllocation {
  /** The size of the GPU's pages. A handle opens each page that contains the memory. */
  static final long GRANULARITY = 2L << 20;

  /** JCuda has no accessor for a handle's bytes. */
  private static final VarHandle HANDLE_BYTES =
      CudaPointer.field(CUipcMemHandle.class, "reserved", byte[].class);

  private PlainAllocation(CudaDevice device, long address, long size) {
    super(device, address, size);
  }

  /** Returns memory with one user; not zeroed. The size is rounded up to whole pages. */
  static PlainAllocation allocate(CudaDevice device, long size) {
    long rounded = size + GRANULARITY - 1 & -GRANULARITY;
    PrimaryContext context = device.context();
    context.makeCurrent();
    CudaPointer pointer = new CudaPointer();
    allocate(
        context, () -> JCudaDriver.cuMemAlloc(pointer, rounded), "cuMemAlloc(" + rounded + ")");
    return new PlainAllocation(device, CudaPointer.valueOf(pointer), rounded);
  }

  /** Returns the handle that holds the given bytes. */
  static CUipcMemHandle handleOf(byte[] bytes) {
    CUipcMemHandle handle = new CUipcMemHandle();
    HANDLE_BYTES.set(handle, bytes.clone());
    return handle;
  }

  @Override
  CudaMemoryName share() {
    return nameOf(this);
  }

  /** Returns the name of memory by {@code cuMemAlloc}; the context is current. */
  static CudaMemoryName nameOf(CudaAllocation memory) {
    PrimaryContext context = memory.device().context();
    CUipcMemHandle handle = new CUipcMemHandle();
    context.check(
        JCudaDriver.cuIpcGetMemHandle(handle, new CudaPointer(memory.address())),
        "cuIpcGetMemHandle");
    byte[] bytes = (byte[]) HANDLE_BYTES.get(handle);
    return CudaMemoryName.plain(memory.id(), memory.size(), context.pciBusId, bytes);
  }

  @Override
  void free() {
    device().context().check(JCudaDriver.cuMemFree(new CudaPointer(address())), "cuMemFree");
  }
}
