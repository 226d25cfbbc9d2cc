// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.IntView;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.gpu.TestKernels;
import java.util.concurrent.locks.LockSupport;

/** Kernels that tests put between collectives: {@code pipeline.cu}, and its copy in Java. */
final class PipelineKernels {
  private static final Kernel SCALE =
      HostKernel.of(
          "scale",
          (thread, args) -> {
            long address = args.get(0, DeviceBuffer.class).address();
            long step = (long) thread.gridDim() * thread.blockDim();
            long first = (long) thread.blockIdx() * thread.blockDim() + thread.threadIdx();
            for (long i = first; i < args.getLong(1); i += step) {
              int value = HostMemory.getInt(address + i * Integer.BYTES);
              HostMemory.putInt(
                  address + i * Integer.BYTES, value * args.getInt(2) + args.getInt(3));
            }
          });

  private static final Kernel HOLD =
      HostKernel.of(
          "hold",
          (thread, args) -> {
            long gate = args.get(0, PinnedBuffer.class).deviceAddress();
            // Pairs with release().
            while (HostMemory.getLongAcquire(gate) == 0) {
              LockSupport.parkNanos(100_000);
            }
          });

  private PipelineKernels() {}

  /** Loads the kernels: a later load might wait for kernels that block. */
  static void prepare(Device device) {
    if (device instanceof CudaDevice) {
      TestKernels.prepare((CudaDevice) device, "pipeline");
    }
  }

  private static Kernel of(Device device, String name, Kernel onHost) {
    return device.kind() == DeviceKind.HOST ? onHost : TestKernels.of("pipeline", name);
  }

  /** Adds a kernel that multiplies ints by a factor and adds to them. */
  static Pipeline scale(Pipeline to, DeviceBuffer ints, int factor, int summand) {
    return scale(to, ints, factor, summand, 3);
  }

  /** Adds the kernel with {@code threads} threads per block. */
  static Pipeline scale(Pipeline to, DeviceBuffer ints, int factor, int summand, int threads) {
    return to.launch(
        of(ints.device(), "pipeline_scale", SCALE),
        2,
        threads,
        KernelArgs.of(ints, ints.size() / Integer.BYTES, factor, summand));
  }

  /** Adds a kernel that blocks the following steps until {@link #release}. */
  static Pipeline hold(Pipeline to, Device device, PinnedBuffer gate) {
    return to.launch(of(device, "pipeline_hold", HOLD), 1, 1, KernelArgs.of(gate));
  }

  static void release(PinnedBuffer gate) {
    gate.buffer().putLongRelease(0, 1); // pairs with the kernel's acquire
  }

  static void put(DeviceBuffer target, int... values) {
    IntView.of(target).put(values);
  }

  static int[] get(DeviceBuffer source) {
    return IntView.of(source).toArray();
  }

  /** A buffer of ints. */
  static DeviceBuffer ints(Device device, int... values) {
    DeviceBuffer buffer = device.allocate((long) values.length * Integer.BYTES);
    put(buffer, values);
    return buffer;
  }
}
