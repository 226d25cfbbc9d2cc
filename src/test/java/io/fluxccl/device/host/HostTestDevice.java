// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.TestDevice;
import java.nio.ByteBuffer;
import org.awaitility.Awaitility;

/** Host devices; their number is unlimited. */
final class HostTestDevice implements TestDevice {
  private static final HostKernel SPIN =
      HostKernel.of(
          "spin",
          (thread, args) ->
              SpinWait.awaitAtLeast(address(args), args.getLong(1), thread.abortAddress(), -1));
  private static final HostKernel STORE =
      HostKernel.of(
          "store", (thread, args) -> HostMemory.putLongRelease(address(args), args.getLong(1)));
  private static final HostKernel ADD =
      HostKernel.of(
          "add",
          (thread, args) ->
              HostMemory.putLong(
                  address(args), HostMemory.getLong(address(args)) + args.getLong(1)));
  private static final HostKernel FILL =
      HostKernel.of(
          "fill",
          (thread, args) -> {
            HostBuffer buffer = args.get(0, HostBuffer.class);
            ByteBuffer bytes = buffer.segment().view(buffer.segmentOffset(), length(args));
            while (bytes.hasRemaining()) {
              bytes.put((byte) args.getInt(2));
            }
          });

  private static int length(KernelArgs args) {
    return Math.toIntExact(args.getLong(1));
  }

  private static long address(KernelArgs args) {
    Object what = args.get(0, Object.class);
    if (what instanceof PinnedBuffer) {
      return ((PinnedBuffer) what).deviceAddress();
    }
    return what instanceof DeviceBuffer ? ((DeviceBuffer) what).address() : (Long) what;
  }

  @Override
  public Device open(int index) {
    return HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(index));
  }

  @Override
  public int count() {
    return 2;
  }

  @Override
  public Kernel spin() {
    return SPIN;
  }

  @Override
  public Kernel store() {
    return STORE;
  }

  @Override
  public Kernel add() {
    return ADD;
  }

  @Override
  public Kernel fill() {
    return FILL;
  }

  @Override
  public int users(DeviceBuffer buffer) {
    return ((HostBuffer) buffer).segment().users();
  }

  @Override
  public void awaitGone(Device device) {
    Awaitility.await().until(() -> threadsNamed("fluxccl-host-") == 0);
  }

  static long threadsNamed(String start) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith(start))
        .count();
  }
}
