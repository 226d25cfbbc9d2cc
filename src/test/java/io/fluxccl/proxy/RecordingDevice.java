// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.function.Consumer;
import org.agrona.concurrent.AtomicBuffer;

/** Records the order of the host's accesses to pinned memory as lines "method offset". */
final class RecordingDevice implements Device {
  private final Device device;
  private final List<String> calls;

  RecordingDevice(Device device, List<String> calls) {
    this.device = device;
    this.calls = calls;
  }

  @Override
  public PinnedBuffer allocatePinned(int size) {
    PinnedBuffer pinned = device.allocatePinned(size);
    AtomicBuffer recorded = recorded(pinned.buffer());
    return new PinnedBuffer() {
      @Override
      public AtomicBuffer buffer() {
        return recorded;
      }

      @Override
      public long deviceAddress() {
        return pinned.deviceAddress();
      }

      @Override
      public int size() {
        return size;
      }

      @Override
      public boolean isClosed() {
        return pinned.isClosed();
      }

      @Override
      public void close() {
        pinned.close();
      }
    };
  }

  private AtomicBuffer recorded(AtomicBuffer memory) {
    return (AtomicBuffer)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {AtomicBuffer.class},
            (self, method, args) -> {
              calls.add(method.getName() + " " + args[0]);
              try {
                return method.invoke(memory, args);
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  @Override
  public DeviceKind kind() {
    return device.kind();
  }

  @Override
  public int index() {
    return device.index();
  }

  @Override
  public String description() {
    return device.description();
  }

  @Override
  public DeviceBuffer allocate(long size) {
    return device.allocate(size);
  }

  @Override
  public DeviceStream createStream(String name) {
    return device.createStream(name);
  }

  @Override
  public DeviceGraph record(String name, Consumer<? super DeviceStream> work) {
    return device.record(name, work);
  }

  @Override
  public void whenEnqueuedWorkIsDone(Runnable action) {
    action.run();
  }

  @Override
  public void close() {
    device.close();
  }
}
