package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.List;

/** One thing that a lane enqueues. Immutable. */
interface Step {
  /**
   * Refuses what can't be right. Called for all steps before the first is enqueued, under the
   * lane's lock.
   *
   * @param first whether it is the first step: what it refuses itself when it is enqueued is then
   *     soon enough
   * @throws InvalidUsage that says what
   */
  void check(Lane lane, boolean first);

  /** Enqueues it; under the lane's lock. */
  void enqueue(Lane lane, DeviceStream stream);

  /** The collectives that it is made of: what ranks compare in checked mode. */
  default List<CollectiveCall> calls() {
    return List.of();
  }

  /** How many collectives of all ranks it is made of. Allocates nothing. */
  default int rounds() {
    return 0;
  }

  /** Whether peers may wait once it is enqueued. */
  default boolean involvesPeers() {
    return false;
  }

  /** What is to be recorded of it, step by step, when it becomes part of a graph. */
  default List<Step> recordable() {
    return List.of(this);
  }

  /** The host's memory that it uses, which a graph does not keep. */
  default List<PinnedBuffer> pinned() {
    return List.of();
  }

  /** Whether a graph can hold it. */
  default boolean isRecordable() {
    return true;
  }

  /** A collective. */
  record Collect(CollectiveCall what) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      lane.algorithms().check(what, first);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      lane.algorithms().enqueue(what, stream);
    }

    @Override
    public List<CollectiveCall> calls() {
      return List.of(what);
    }

    @Override
    public int rounds() {
      return what.collective().isByAll() ? 1 : 0;
    }

    @Override
    public boolean involvesPeers() {
      return true;
    }
  }

  /** A kernel of the user's. */
  record Launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      Device device = lane.device();
      if (kernel.kind() != device.kind() || gridDim < 1 || blockDim < 1) {
        throw new InvalidUsage(
            "kernel "
                + kernel.name()
                + " <<<"
                + gridDim
                + ", "
                + blockDim
                + ">>> for "
                + kernel.kind()
                + " on "
                + device.description()
                + "; give a kernel of the lane's kind of device, and 1 block and 1 thread or more");
      }
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.launch(kernel, gridDim, blockDim, args);
    }
  }

  /** A copy within the device. */
  record Copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size)
      implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      requirePart(lane, "target", target, targetOffset, size);
      requirePart(lane, "source", source, sourceOffset, size);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.copy(target, targetOffset, source, sourceOffset, size);
    }
  }

  /** A copy to the host's memory. */
  record CopyToHost(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size)
      implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      requireOpen(lane, "target", target.isClosed());
      requireRange(lane, "target", targetOffset, size, target.size());
      requirePart(lane, "source", source, sourceOffset, size);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.copy(target, targetOffset, source, sourceOffset, size);
    }

    @Override
    public List<PinnedBuffer> pinned() {
      return List.of(target);
    }
  }

  /** A copy from the host's memory. */
  record CopyFromHost(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size)
      implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      requirePart(lane, "target", target, targetOffset, size);
      requireOpen(lane, "source", source.isClosed());
      requireRange(lane, "source", sourceOffset, size, source.size());
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.copy(target, targetOffset, source, sourceOffset, size);
    }

    @Override
    public List<PinnedBuffer> pinned() {
      return List.of(source);
    }
  }

  /** What comes behind it waits for what another lane has enqueued so far. */
  record After(Lane other) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      other.refuseWhenClosed("after: the other lane is closed");
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.waitFor(other.stream());
    }

    @Override
    public boolean isRecordable() {
      return false;
    }
  }

  private static void requirePart(
      Lane lane, String what, DeviceBuffer buffer, long offset, long size) {
    if (buffer.device() != lane.device()) {
      throw new InvalidUsage(
          copyOn(lane)
              + "the "
              + what
              + " is memory of "
              + buffer.device().description()
              + ", not of the communicator's device, "
              + lane.device().description());
    }
    requireOpen(lane, what, buffer.isClosed());
    requireRange(lane, what, offset, size, buffer.size());
  }

  private static void requireOpen(Lane lane, String what, boolean isClosed) {
    if (isClosed) {
      throw new InvalidUsage(copyOn(lane) + "the " + what + " is closed");
    }
  }

  private static void requireRange(Lane lane, String what, long offset, long size, long all) {
    if (offset < 0 || size < 0 || offset > all - size) {
      throw new InvalidUsage(
          copyOn(lane)
              + what
              + " range offset="
              + offset
              + " size="
              + size
              + " of a buffer of "
              + all
              + " bytes");
    }
  }

  private static String copyOn(Lane lane) {
    return "copy on rank " + lane.topology().rank() + ": ";
  }
}
