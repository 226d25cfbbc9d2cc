// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import jcuda.CudaException;
import jcuda.Pointer;
import jcuda.driver.CUmemorytype;
import jcuda.driver.CUpointer_attribute;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * The driver's attributes of an address. A value that the driver does not return is 0.
 *
 * @param memoryType {@code CU_MEMORYTYPE_}; 0 if the driver does not know the address
 * @param context in which it was allocated; 0 for memory of all contexts, such as VMM and pool
 *     memory
 * @param device the GPU's number
 * @param bufferId identifies the allocation; unlike an address it is never reused
 * @param managed whether the driver moves it between host and GPU
 * @param legacyIpc whether {@code cuIpcGetMemHandle} accepts it
 * @param pool the memory pool that contains it, or 0
 */
record PointerAttributes(
    int memoryType,
    long context,
    int device,
    long bufferId,
    boolean managed,
    boolean legacyIpc,
    long pool) {
  static PointerAttributes of(PrimaryContext context, long address) {
    context.makeCurrent();
    return new PointerAttributes(
        (int) query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
        query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT),
        (int) query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
        query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID),
        query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0,
        query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0,
        query(address, CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
  }

  private static long query(long address, int attribute) {
    long[] value = new long[1];
    try {
      CudaPointer pointer = new CudaPointer(address);
      int result = JCudaDriver.cuPointerGetAttribute(Pointer.to(value), attribute, pointer);
      return result == CUresult.CUDA_SUCCESS ? value[0] : 0;
    } catch (CudaException e) { // the application lets JCuda throw
      return 0;
    }
  }

  /**
   * Refuses an address unless it is GPU memory that kernels of the primary context can use.
   *
   * @param address for the message
   * @throws InvalidUsage saying what it is
   */
  void requireUsable(PrimaryContext of, long address) {
    String at = "wrap of 0x" + Long.toHexString(address) + " on GPU " + of.ordinal;
    if (memoryType == 0) {
      throw InvalidUsage.of(
          "%s: the driver knows no memory there; give an address of GPU memory that is allocated",
          at);
    }
    if (memoryType != CUmemorytype.CU_MEMORYTYPE_DEVICE
        && memoryType != CUmemorytype.CU_MEMORYTYPE_UNIFIED) {
      throw InvalidUsage.of("%s: that is memory of the host, not of a GPU", at);
    }
    if (!managed && device != of.ordinal) {
      throw InvalidUsage.of(
          "%s: that is memory of GPU %d; wrap it with the CudaDevice of that GPU", at, device);
    }
    if (context != 0 && context != CudaPointer.valueOf(of.handle)) {
      throw InvalidUsage.of(
          "%s: it was allocated in another context than the GPU's primary one; use"
              + " cuDevicePrimaryCtxRetain, or the runtime API, in place of cuCtxCreate",
          at);
    }
  }
}
