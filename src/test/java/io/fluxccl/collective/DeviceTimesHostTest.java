// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;

class DeviceTimesHostTest extends DeviceTimesContract {
  @Override
  Device device(int rank) {
    return HostDevice.create();
  }
}
