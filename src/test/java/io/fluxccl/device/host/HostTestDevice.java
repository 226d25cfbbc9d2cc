// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.TestDevice;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Host devices; their number is unlimited. */
final class HostTestDevice extends TestDevice {
  private static final AtomicInteger OPENED = new AtomicInteger();

  /** The start of the names of each device's threads: other tests have devices, too. */
  private static final Map<Device, String> NAMES = new ConcurrentHashMap<>();

  HostTestDevice() {
    super(
        HostKernel.of(
            "spin",
            (thread, args) ->
                SpinWait.awaitAtLeast(address(args), args.getLong(1), thread.abortAddress(), -1)),
        HostKernel.of(
            "store", (thread, args) -> HostMemory.putLongRelease(address(args), args.getLong(1))),
        HostKernel.of(
            "add",
            (thread, args) ->
                HostMemory.putLong(
                    address(args), HostMemory.getLong(address(args)) + args.getLong(1))),
        HostKernel.of(
            "fill",
            (thread, args) ->
                HostMemory.fill(address(args), args.getLong(1), (byte) args.getInt(2))));
  }

  private static long address(KernelArgs args) {
    Object what = args.get(0, Object.class);
    if (what instanceof PinnedBuffer pinned) {
      return pinned.deviceAddress();
    }
    return what instanceof DeviceBuffer buffer ? buffer.address() : (Long) what;
  }

  @Override
  public Device open(int index) {
    String name = "tested-" + OPENED.incrementAndGet();
    Device device = HostDevice.create(new HostDeviceOptions(index, name));
    NAMES.put(device, name + "-" + index + "-");
    return device;
  }

  @Override
  public int count() {
    return 2;
  }

  @Override
  public int users(DeviceBuffer buffer) {
    return ((HostBuffer) buffer).segment().users();
  }

  @Override
  public boolean isIdle(DeviceStream stream) {
    return ((HostStream.Live) stream).isIdle();
  }

  @Override
  public boolean isGone(Device device) {
    return threads(device, "") == 0;
  }

  /** Returns the name of the thread of a device's stream. */
  static String thread(Device device, String stream) {
    return NAMES.get(device) + stream;
  }

  /** Returns how many threads a device has for streams whose names begin so. */
  static long threads(Device device, String stream) {
    String start = thread(device, stream);
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith(start))
        .count();
  }
}
