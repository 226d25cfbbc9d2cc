// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.TestDevice;
import org.awaitility.Awaitility;

/** GPUs, real or not. */
final class CudaTestDevice implements TestDevice {
  @Override
  public CudaDevice open(int index) {
    CudaDevice device = CudaDevice.open(index);
    StreamKernels.load(device);
    return device;
  }

  @Override
  public int count() {
    return CudaDriver.count();
  }

  @Override
  public Kernel spin() {
    return StreamKernels.SPIN;
  }

  @Override
  public Kernel store() {
    return StreamKernels.STORE;
  }

  @Override
  public Kernel add() {
    return StreamKernels.ADD;
  }

  @Override
  public Kernel fill() {
    return StreamKernels.FILL;
  }

  @Override
  public int users(DeviceBuffer buffer) {
    return ((CudaBuffer) buffer).allocation().users();
  }

  @Override
  public void awaitGone(Device device) {
    Awaitility.await().until(() -> ((CudaDevice) device).context().users() == 0);
  }
}
