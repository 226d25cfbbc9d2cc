// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.pipeline;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;

/** The kernel of {@code layer.cu} for the host device. */
final class LayerKernel {
  private LayerKernel() {}

  static Kernel onHost() {
    return HostKernel.of("layer", LayerKernel::run);
  }

  private static void run(KernelThread thread, KernelArgs args) {
    long weights = args.get(0, DeviceBuffer.class).address();
    long input = args.get(1, DeviceBuffer.class).address();
    long output = args.get(2, DeviceBuffer.class).address();
    int rows = args.getInt(3);
    int columns = args.getInt(4);
    for (int row = thread.blockIdx(); row < rows; row += thread.gridDim()) {
      int sum = 0;
      long weight = weights + (long) row * columns * Integer.BYTES;
      for (int column = 0; column < columns; column++) {
        sum +=
            HostMemory.getInt(weight + column * 4L)
                * Model.activate(HostMemory.getInt(input + column * 4L));
      }
      HostMemory.putInt(output + row * 4L, sum);
    }
  }
}
