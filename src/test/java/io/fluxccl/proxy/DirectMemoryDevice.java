// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.agrona.BufferUtil;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** A device that only allocates memory of this process, and counts open buffers. */
public class DirectMemoryDevice implements Device {
  private final AtomicInteger open = new AtomicInteger();

  /** Returns the number of buffers that are not closed. */
  public int openBuffers() {
    return open.get();
  }

  @Override
  public DeviceKind kind() {
    return DeviceKind.HOST;
  }

  @Override
  public int index() {
    return 0;
  }

  @Override
  public String description() {
    return "direct memory";
  }

  @Override
  public DeviceBuffer allocate(long size) {
    return new Memory((int) size);
  }

  @Override
  public PinnedBuffer allocatePinned(int size) {
    Memory memory = new Memory(size);
    AtomicBuffer view = view(memory.buffer);
    return new PinnedBuffer() {
      @Override
      public AtomicBuffer buffer() {
        return view;
      }

      @Override
      public long deviceAddress() {
        return memory.address();
      }

      @Override
      public int size() {
        return size;
      }

      @Override
      public boolean isClosed() {
        return memory.isClosed();
      }

      @Override
      public void close() {
        memory.close();
      }
    };
  }

  /** Returns the view of pinned memory that the host uses. */
  AtomicBuffer view(AtomicBuffer memory) {
    return memory;
  }

  @Override
  public DeviceStream createStream(String name) {
    throw new InvalidUsage("this device has memory only");
  }

  @Override
  public DeviceGraph record(String name, Consumer<? super DeviceStream> work) {
    throw new InvalidUsage("this device has memory only");
  }

  @Override
  public void whenEnqueuedWorkIsDone(Runnable action) {
    action.run();
  }

  @Override
  public void close() {}

  private final class Memory implements DeviceBuffer {
    private final ByteBuffer bytes;
    private final UnsafeBuffer buffer;
    private boolean closed;

    Memory(int size) {
      bytes = ByteBuffer.allocateDirect(size + 64);
      int offset = (int) (-BufferUtil.address(bytes) & 63);
      buffer = new UnsafeBuffer(bytes, offset, size);
      open.incrementAndGet();
    }

    @Override
    public Device device() {
      return DirectMemoryDevice.this;
    }

    @Override
    public long address() {
      return buffer.addressOffset();
    }

    @Override
    public long size() {
      return buffer.capacity();
    }

    @Override
    public boolean isClosed() {
      return closed;
    }

    @Override
    public void retain() {
      throw new UnsupportedOperationException("nobody registers this memory");
    }

    @Override
    public void release() {
      throw new UnsupportedOperationException("nobody registers this memory");
    }

    @Override
    public DeviceBuffer slice(long offset, long size) {
      throw new InvalidUsage("not sliced in these tests");
    }

    @Override
    public void upload(long offset, ByteBuffer source) {
      buffer.putBytes((int) offset, source, source.remaining());
    }

    @Override
    public void download(long offset, ByteBuffer target) {
      buffer.getBytes((int) offset, target, target.remaining());
    }

    @Override
    public void close() {
      if (!closed) {
        closed = true;
        open.decrementAndGet();
        BufferUtil.free(bytes);
      }
    }
  }
}
