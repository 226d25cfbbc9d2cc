// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.JvmAccess;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.AbstractPinnedBuffer;
import io.fluxccl.device.Arena;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The host as a device: its memory can be shared with other processes of the host, its streams are
 * threads, its kernels are {@link HostKernel}s. A process may have several, one for each rank in
 * it. They share only the cores.
 */
public final class HostDevice implements Device {
  /** From this size on, a buffer has a segment of its own. */
  private static final int LARGE = 64 * 1024;

  private static final int BLOCK_LENGTH = 1 << 20;

  private final HostDeviceOptions options;
  private final Arena<SharedSegment> arena;
  final BlockWorkers blockWorkers;

  /** All open streams, and closed streams whose thread has not ended yet. */
  private final List<HostStream.Live> streams = new CopyOnWriteArrayList<>();

  private final Lifecycle lifecycle;

  private HostDevice(HostDeviceOptions options) {
    this.options = options;
    this.lifecycle = new Lifecycle("host device " + options.index());
    // The lifecycle closes these after the streams and graphs that are opened later.
    this.arena =
        new Arena<>(
            lifecycle,
            BLOCK_LENGTH,
            () -> SharedSegment.create(BLOCK_LENGTH),
            block -> !block.isNamed());
    this.blockWorkers = new BlockWorkers(options.name(), lifecycle);
  }

  /** Returns a device with the default options. */
  public static HostDevice create() {
    return create(HostDeviceOptions.DEFAULT);
  }

  /**
   * Returns a device with the given options.
   *
   * @param options its index and its threads' names
   * @return the device; the caller closes it
   * @throws io.fluxccl.InvalidUsage if the JVM was started without the options that it needs, or
   *     the environment variable FLUXCCL_SHM_DIR names no directory to which this user can write
   */
  public static HostDevice create(HostDeviceOptions options) {
    JvmAccess.requireUnsafe();
    SegmentDirectory.check(System.getenv(SegmentDirectory.VARIABLE));
    return new HostDevice(options);
  }

  @Override
  public DeviceKind kind() {
    return DeviceKind.HOST;
  }

  @Override
  public int index() {
    return options.index();
  }

  @Override
  public String description() {
    return Text.of(
        "host, %s cores, %s MiB of shared memory free in %s",
        Runtime.getRuntime().availableProcessors(),
        SegmentDirectory.get().toFile().getUsableSpace() >> 20,
        SegmentDirectory.get());
  }

  /**
   * {@inheritDoc}
   *
   * <p>At most {@link SharedSegment#MAX_SIZE} bytes, aligned to 128; a buffer of 64 KiB or more has
   * its own segment.
   */
  @Override
  public HostBuffer allocate(long size) {
    lifecycle.checkOpen();
    if (size >= 1 && size < LARGE) {
      Arena.Piece<SharedSegment> piece = arena.allocate(size);
      HostMemory.fill(piece.block().address() + piece.offset(), size, (byte) 0);
      return new HostBuffer(this, piece.block(), piece.offset(), size);
    }
    return new HostBuffer(this, SharedSegment.create(size), 0, size);
  }

  /**
   * Returns memory of this process as a buffer that frees nothing. Other processes can't map it:
   * collectives copy it through staging buffers, even if it is registered.
   *
   * <pre>{@code
   * device.wrap(ByteBuffer.allocateDirect(64)); // BAD: refused, Java's order is big-endian
   * device.wrap(ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder())); // GOOD
   * }</pre>
   *
   * @param bytes a direct buffer that can be written, little-endian ({@code
   *     .order(ByteOrder.nativeOrder())}), from its position to its limit; kept until the buffer
   *     and the work that uses it are done
   * @return the buffer; the caller closes it
   * @throws InvalidUsage if it is another kind of ByteBuffer
   */
  public HostBuffer wrap(ByteBuffer bytes) {
    lifecycle.checkOpen();
    return new HostBuffer(this, HostRange.of(bytes), 0, bytes.remaining());
  }

  /**
   * {@link #wrap(ByteBuffer)} of a range of addresses, such as memory of a native library. The
   * range is not checked, and the JVM crashes if it is not mapped: keep it mapped until the buffer
   * is closed and the work that uses it is done. It has no {@link HostBuffer#asByteBuffer}.
   */
  public HostBuffer wrap(long address, long bytes) {
    lifecycle.checkOpen();
    return new HostBuffer(this, HostRange.of(address, bytes), 0, bytes);
  }

  @Override
  public PinnedBuffer allocatePinned(int size) {
    lifecycle.checkOpen();
    return HostPinnedBuffer.allocate(this, size);
  }

  /**
   * {@inheritDoc}
   *
   * <p>Its thread starts with the first work.
   */
  @Override
  public HostStream createStream(String name) {
    return newStream(options.name() + "-" + options.index() + "-" + name);
  }

  HostStream.Live newStream(String fullName) {
    lifecycle.checkOpen();
    HostStream.Live stream = new HostStream.Live(this, fullName);
    streams.add(stream);
    return lifecycle.own(stream);
  }

  /**
   * {@inheritDoc}
   *
   * <p>Every launch uses the same argument objects. A stream that launches a graph with branches
   * has a thread for each of them.
   */
  @Override
  public DeviceGraph record(String name, Consumer<? super DeviceStream> work) {
    lifecycle.checkOpen();
    return lifecycle.own(HostGraph.record(this, name, work));
  }

  @Override
  public void whenEnqueuedWorkIsDone(Runnable action) {
    UseCount busyStreams = new UseCount(action);
    for (HostStream.Live stream : streams) {
      if (!stream.isIdle()) {
        busyStreams.retain();
        stream.runAfterEnqueuedWork(busyStreams::release);
      }
    }
    busyStreams.release();
  }

  @Override
  public void close() {
    lifecycle.close();
  }

  /** Removes a closed stream or graph from the device's lists. */
  void remove(AutoCloseable closed) {
    streams.remove(closed);
    lifecycle.disown(closed);
  }

  @Override
  public String toString() {
    return "HostDevice(index=" + index() + ")";
  }

  /** Memory of this process only. Shares no pair of cache lines with other memory. */
  private static final class HostPinnedBuffer extends AbstractPinnedBuffer {
    private static final int ALIGNMENT = 128;

    private HostPinnedBuffer(HostDevice device, long allocation, int size) {
      super(
          device,
          new UnsafeBuffer(aligned(allocation), size),
          aligned(allocation),
          () -> UnsafeApi.freeMemory(allocation));
    }

    private static long aligned(long length) {
      return length + ALIGNMENT - 1 & -ALIGNMENT;
    }

    static HostPinnedBuffer allocate(HostDevice device, int size) {
      if (size < 1) {
        throw new InvalidUsage("size=" + size + "; give 1 or more");
      }
      long length = aligned(size) + ALIGNMENT;
      long allocation;
      try {
        allocation = UnsafeApi.allocateMemory(length);
      } catch (OutOfMemoryError e) {
        throw new DeviceFailure(
            0, "OUT_OF_MEMORY", "allocating " + size + " bytes of pinned memory failed", e);
      }
      UnsafeApi.setMemory(allocation, length, (byte) 0);
      return new HostPinnedBuffer(device, allocation, size);
    }
  }
}
