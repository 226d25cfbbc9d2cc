// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.Kernel;
import java.nio.charset.StandardCharsets;
import jcuda.driver.CUdevice_attribute;
import jcuda.driver.JCudaDriver;

/**
 * The properties of a GPU that FluxCCL uses.
 *
 * @param model the product name
 * @param memory its size in bytes
 * @param multiprocessors their number
 * @param computeCapability ten times the major plus the minor number
 * @param maxBlockDim the most threads of a block
 * @param maxSharedBytes the most shared memory of a block, for kernels that request it
 * @param exportsDmaBufs whether the driver exports its memory as dma-bufs
 * @param ordersRemoteWrites whether the GPU itself consumes writes of network devices in order
 */
record GpuProperties(
    String model,
    long memory,
    int multiprocessors,
    int computeCapability,
    int maxBlockDim,
    int maxSharedBytes,
    boolean exportsDmaBufs,
    boolean ordersRemoteWrites) {
  /** {@code CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED}, which JCuda does not name. */
  private static final int DMA_BUF_SUPPORTED = 124;

  /** {@code CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER}: below it, a consumer needs a flush. */
  private static final int ORDERING_OWNER = 100;

  private static final int MAX_NAME_LENGTH = 256;

  static GpuProperties of(PrimaryContext context) {
    byte[] name = new byte[MAX_NAME_LENGTH];
    context.check(
        JCudaDriver.cuDeviceGetName(name, MAX_NAME_LENGTH, context.device), "cuDeviceGetName");
    long[] memory = new long[1];
    context.check(JCudaDriver.cuDeviceTotalMem(memory, context.device), "cuDeviceTotalMem");
    int major = context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    int minor = context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return new GpuProperties(
        new String(name, StandardCharsets.US_ASCII).trim(),
        memory[0],
        context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        10 * major + minor,
        context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        context.attribute(DMA_BUF_SUPPORTED) != 0,
        context.attribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
            >= ORDERING_OWNER);
  }

  /** Returns a description for log messages and reports. */
  String description() {
    return Text.of(
        "%s, %s MiB, %s multiprocessors, compute capability %s.%s",
        model, memory >> 20, multiprocessors, computeCapability / 10, computeCapability % 10);
  }

  /** Refuses a launch that exceeds the limits of the GPU. */
  void checkLaunch(Kernel kernel, int gridDim, int blockDim, int sharedBytes) {
    if (gridDim < 1
        || blockDim < 1
        || blockDim > maxBlockDim
        || sharedBytes < 0
        || sharedBytes > maxSharedBytes) {
      throw InvalidUsage.of(
          "gridDim=%s blockDim=%s sharedBytes=%s of kernel %s; a grid has 1 block or"
              + " more, a block 1 to %s threads and 0 to %s bytes of shared memory",
          gridDim, blockDim, sharedBytes, kernel.name(), maxBlockDim, maxSharedBytes);
    }
  }
}
