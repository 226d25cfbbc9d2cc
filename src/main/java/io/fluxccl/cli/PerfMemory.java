// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Locale;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstream_flags;
import jcuda.driver.JCudaDriver;

/** The source of the measured buffers: {@code --memory}. */
enum PerfMemory {
  /** The library allocates them. */
  OWN,
  /** Parts of what {@code cuMemAlloc} gave, wrapped; on the host a direct ByteBuffer. */
  WRAPPED,
  /** Parts of what {@code cuMemAllocAsync} gave, wrapped: ranks can't map them. */
  POOL;

  /** A tensor in a block of a caching allocator seldom begins where the block does. */
  private static final int OFFSET = 512;

  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns a buffer, whose memory lives as long as the device's context or the buffer. */
  DeviceBuffer allocate(Device device, long bytes) {
    if (this == OWN) {
      return device.allocate(bytes);
    }
    if (device instanceof HostDevice host) {
      if (bytes > Integer.MAX_VALUE - OFFSET) {
        throw InvalidUsage.of(
            "memory=%s of %d bytes; a ByteBuffer has 2 GiB at most", label(), bytes);
      }
      ByteBuffer block = ByteBuffer.allocateDirect((int) bytes + OFFSET);
      return host.wrap(block.position(OFFSET).slice().order(ByteOrder.nativeOrder()));
    }
    return OfDriver.allocate((CudaDevice) device, bytes, this == POOL);
  }

  /** Apart, because JCuda may be missing. */
  private static final class OfDriver {
    static DeviceBuffer allocate(CudaDevice device, long bytes, boolean pool) {
      device.makeCurrent();
      CUdeviceptr block = new CUdeviceptr();
      if (pool) {
        CUstream stream = new CUstream();
        check(
            JCudaDriver.cuStreamCreate(stream, CUstream_flags.CU_STREAM_NON_BLOCKING),
            "cuStreamCreate");
        check(JCudaDriver.cuMemAllocAsync(block, bytes + OFFSET, stream), "cuMemAllocAsync");
        check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
        check(JCudaDriver.cuStreamDestroy(stream), "cuStreamDestroy");
      } else {
        check(JCudaDriver.cuMemAlloc(block, bytes + OFFSET), "cuMemAlloc");
      }
      return device.wrap(block.withByteOffset(OFFSET), bytes);
    }

    private static void check(int result, String call) {
      if (result != CUresult.CUDA_SUCCESS) {
        throw new DeviceFailure(result, CUresult.stringFor(result), call + " for the buffers");
      }
    }
  }
}
