// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.TestDevice;

/** GPUs, real or not. */
final class CudaTestDevice extends TestDevice {
  private final CudaDeviceOptions options;

  CudaTestDevice() {
    this(CudaMemoryKind.PLAIN);
  }

  CudaTestDevice(CudaMemoryKind memory) {
    super(StreamKernels.SPIN, StreamKernels.STORE, StreamKernels.ADD, StreamKernels.FILL);
    options = CudaDeviceOptions.DEFAULT.withMemory(memory);
  }

  @Override
  public CudaDevice open(int index) {
    CudaDevice device = CudaDevice.open(index, options);
    StreamKernels.load(device);
    return device;
  }

  @Override
  public int count() {
    return CudaDriver.count();
  }

  @Override
  public int users(DeviceBuffer buffer) {
    return ((CudaBuffer) buffer).allocation().users();
  }

  @Override
  public boolean isIdle(DeviceStream stream) {
    return ((LiveCudaStream) stream).isIdle();
  }

  @Override
  public boolean isGone(Device device) {
    return ((CudaDevice) device).context().users() == 0;
  }
}
