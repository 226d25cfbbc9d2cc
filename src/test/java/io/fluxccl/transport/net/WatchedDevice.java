// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.WatchedBuffer.unwrap;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.agrona.concurrent.AtomicBuffer;

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
    openPinned++;
    return new WatchedPinned(inner.allocatePinned(size));
  }

  @Override
  public synchronized DeviceStream createStream(String name) {
    WatchedStream stream = new WatchedStream(inner.createStream(name));
    streams.add(stream);
    return stream;
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

  private final class WatchedPinned implements PinnedBuffer {
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

    @Override
    public AtomicBuffer buffer() {
      return memory.buffer();
    }

    @Override
    public long deviceAddress() {
      return memory.deviceAddress();
    }

    @Override
    public int size() {
      return memory.size();
    }

    @Override
    public boolean isClosed() {
      synchronized (WatchedDevice.this) {
        return closed;
      }
    }

    @Override
    public void close() {
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

  private final class WatchedStream implements DeviceStream {
    private final DeviceStream stream;

    WatchedStream(DeviceStream stream) {
      this.stream = stream;
    }

    private DeviceStream enqueue(Runnable work) {
      synchronized (WatchedDevice.this) {
        if (refusal != null) {
          throw refusal;
        }
        if (bug != null) {
          throw bug;
        }
        if (death != null) {
          return this;
        }
        if (holding) {
          held.add(work);
        } else {
          work.run();
        }
        return this;
      }
    }

    @Override
    public Device device() {
      return WatchedDevice.this;
    }

    @Override
    public DeviceStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
      return enqueue(() -> stream.launch(kernel, gridDim, blockDim, args));
    }

    @Override
    public DeviceStream copy(
        DeviceBuffer target, long targetOffset, DeviceBuffer source, long offset, long size) {
      return enqueue(() -> stream.copy(unwrap(target), targetOffset, unwrap(source), offset, size));
    }

    @Override
    public DeviceStream copy(
        PinnedBuffer target, int targetOffset, DeviceBuffer source, long offset, int size) {
      WatchedPinned pinned = (WatchedPinned) target;
      return enqueue(() -> stream.copy(pinned.use(), targetOffset, unwrap(source), offset, size));
    }

    @Override
    public DeviceStream copy(
        DeviceBuffer target, long targetOffset, PinnedBuffer source, int offset, int size) {
      WatchedPinned pinned = (WatchedPinned) source;
      return enqueue(() -> stream.copy(unwrap(target), targetOffset, pinned.use(), offset, size));
    }

    @Override
    public DeviceStream writeValue(DeviceBuffer target, long offset, long value) {
      return enqueue(() -> stream.writeValue(unwrap(target), offset, value));
    }

    @Override
    public DeviceStream writeValue(PinnedBuffer target, int index, long value) {
      WatchedPinned pinned = (WatchedPinned) target;
      return enqueue(() -> stream.writeValue(pinned.use(), index, value));
    }

    @Override
    public DeviceStream waitFor(DeviceStream other) {
      throw new UnsupportedOperationException("waitFor");
    }

    @Override
    public DeviceStream branch(String name) {
      throw new UnsupportedOperationException("branch");
    }

    @Override
    public DeviceStream launch(DeviceGraph graph) {
      throw new UnsupportedOperationException("graphs");
    }

    @Override
    public CompletableFuture<Void> completion() {
      synchronized (WatchedDevice.this) {
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
    }

    /** As a GPU's stream: what was enqueued runs to its end. */
    @Override
    public void close() {
      synchronized (WatchedDevice.this) {
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
}
