// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.transport.Overlay;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * A device that counts its open resources and whose streams can be paused, refuse work, or fail as
 * a GPU's do. Paused work runs in the order enqueued when {@link #letGo} is called.
 */
public final class WatchedDevice implements Device {
  private final Device inner;

  // All guarded by this.
  private final ArrayDeque<Runnable> held = new ArrayDeque<>();
  private final List<WatchedStream> streams = new ArrayList<>();
  private boolean holding;
  private DeviceFailure refusal;
  private Error bug;
  private boolean closingBadly;
  private DeviceFailure death;
  private int pinnedAtMost = Integer.MAX_VALUE;
  private int openPinned;
  private int misuses;

  /** A device that behaves as that one. */
  public WatchedDevice(Device inner) {
    this.inner = inner;
  }

  synchronized void hold() {
    holding = true;
  }

  synchronized void letGo() {
    while (!held.isEmpty()) {
      held.poll().run();
    }
    holding = false;
  }

  /** Makes later calls of streams throw. */
  synchronized void refuse(DeviceFailure failure) {
    refusal = failure;
  }

  /** Makes later calls of streams throw an error that a device must not throw. */
  synchronized void failWith(Error error) {
    bug = error;
  }

  /** Makes later closes of pinned memory and streams throw, although they succeed. */
  public synchronized void closeBadly(boolean badly) {
    closingBadly = badly;
  }

  private void checkClosing(String what) {
    if (closingBadly) {
      throw new IllegalStateException(what + " can't be closed");
    }
  }

  /**
   * Makes the device fail: work that is enqueued later does not run, and queries throw the failure.
   */
  public synchronized void die(DeviceFailure failure) {
    death = failure;
  }

  /** Makes later allocations fail while this number of pinned buffers is open. */
  synchronized void pinAtMost(int count) {
    pinnedAtMost = count;
  }

  /** Pinned buffers that are open, or closed with work in flight. */
  synchronized int openPinned() {
    return openPinned;
  }

  synchronized int openStreams() {
    return streams.size();
  }

  synchronized int heldWork() {
    return held.size();
  }

  /** Number of uses of pinned memory after its close. */
  synchronized int misuses() {
    return misuses;
  }

  @Override
  public DeviceKind kind() {
    return inner.kind();
  }

  @Override
  public int index() {
    return inner.index();
  }

  @Override
  public String description() {
    return inner.description();
  }

  @Override
  public DeviceBuffer allocate(long size) {
    return inner.allocate(size);
  }

  @Override
  public synchronized PinnedBuffer allocatePinned(int size) {
    if (openPinned >= pinnedAtMost) {
      throw new OutOfMemoryError("of a test");
    }
    openPinned++;
    PinnedBuffer memory = inner.allocatePinned(size);
    return Overlay.of(PinnedBuffer.class, new WatchedPinned(memory), memory);
  }

  @Override
  public synchronized DeviceStream createStream(String name) {
    WatchedStream stream = new WatchedStream(inner.createStream(name));
    streams.add(stream);
    return (DeviceStream)
        Proxy.newProxyInstance(
            DeviceStream.class.getClassLoader(), new Class<?>[] {DeviceStream.class}, stream);
  }

  @Override
  public DeviceGraph record(String name, Consumer<? super DeviceStream> work) {
    return inner.record(name, work);
  }

  @Override
  public synchronized void whenEnqueuedWorkIsDone(Runnable action) {
    if (held.isEmpty()) {
      inner.whenEnqueuedWorkIsDone(action);
    } else {
      held.add(() -> inner.whenEnqueuedWorkIsDone(action));
    }
  }

  @Override
  public void close() {
    letGo();
    inner.close();
  }

  /** Replaces methods of pinned memory. */
  private final class WatchedPinned {
    private final PinnedBuffer memory;
    private boolean closed;
    private boolean gone;

    WatchedPinned(PinnedBuffer memory) {
      this.memory = memory;
    }

    PinnedBuffer use() {
      if (gone) {
        misuses++;
      }
      return memory;
    }

    boolean isClosed() {
      synchronized (WatchedDevice.this) {
        return closed;
      }
    }

    void close() {
      synchronized (WatchedDevice.this) {
        if (!closed) {
          closed = true;
          whenEnqueuedWorkIsDone(this::letGoOf);
          checkClosing("pinned memory");
        }
      }
    }

    private void letGoOf() {
      synchronized (WatchedDevice.this) {
        gone = true;
        openPinned--;
        memory.close();
      }
    }
  }

  private static Object unwrapped(Object argument) {
    return Overlay.overrides(WatchedPinned.class, argument)
        .map(pinned -> (Object) pinned.use())
        .orElseGet(() -> Overlay.unwrapped(argument));
  }

  /** Holds up, refuses or forwards the calls of a stream. */
  private final class WatchedStream implements InvocationHandler {
    private final DeviceStream stream;

    WatchedStream(DeviceStream stream) {
      this.stream = stream;
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.isDefault()) {
        return InvocationHandler.invokeDefault(proxy, method, arguments);
      }
      if (method.getDeclaringClass() == Object.class) {
        return Overlay.identity(proxy, method, arguments);
      }
      synchronized (WatchedDevice.this) {
        switch (method.getName()) {
          case "device":
            return WatchedDevice.this;
          case "completion":
            return completion();
          case "close":
            close();
            return null;
          default:
            enqueue(() -> call(method, arguments));
            return proxy;
        }
      }
    }

    private void enqueue(Runnable work) {
      if (refusal != null) {
        throw refusal;
      }
      if (bug != null) {
        throw bug;
      }
      if (death != null) {
        return;
      }
      if (holding) {
        held.add(work);
      } else {
        work.run();
      }
    }

    private void call(Method method, Object[] arguments) {
      try {
        method.invoke(stream, Arrays.stream(arguments).map(WatchedDevice::unwrapped).toArray());
      } catch (InvocationTargetException e) {
        throw e.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(e);
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(e);
      }
    }

    private CompletableFuture<Void> completion() {
      if (death != null) {
        return CompletableFuture.failedFuture(death);
      }
      if (!holding) {
        return stream.completion();
      }
      CompletableFuture<Void> done = new CompletableFuture<>();
      held.add(() -> stream.completion().thenAccept(v -> done.complete(null)));
      return done;
    }

    /** As a GPU's stream: what was enqueued runs to its end. */
    private void close() {
      streams.remove(this);
      if (held.isEmpty()) {
        stream.close();
      } else {
        held.add(stream::close);
      }
      checkClosing("a stream");
    }
  }
}
