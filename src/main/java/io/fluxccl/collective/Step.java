// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.List;
import java.util.function.Consumer;

/** One operation that a lane enqueues. Immutable. */
interface Step {
  /**
   * Refuses an invalid step. Called for all steps before the first is enqueued, under the lane's
   * lock.
   *
   * @param first whether it is enqueued next: checks that {@link #enqueue} makes may then be left
   *     out
   * @throws InvalidUsage if the step is invalid
   */
  void check(Lane lane, boolean first);

  /** Enqueues this step; under the lane's lock. */
  void enqueue(Lane lane, DeviceStream stream);

  /** Adds its collectives to those that ranks compare. */
  default void compare(Lane lane) {}

  /**
   * Enqueues this step.
   *
   * @param isCompared whether its collectives are first added to those that ranks compare
   */
  default void enqueue(Lane lane, DeviceStream stream, boolean isCompared) {
    if (isCompared) {
      compare(lane);
    }
    enqueue(lane, stream);
  }

  /** Returns the collectives of this step, which ranks compare in checked mode. */
  default List<CollectiveCall> calls() {
    return List.of();
  }

  /** Returns the number of its collectives of all ranks. Allocates nothing. */
  default int rounds() {
    return 0;
  }

  /** Returns the bytes of its collectives, as far as they are known. Allocates nothing. */
  default long bytes(int nRanks) {
    return 0;
  }

  /** Returns whether peers may wait for this rank after it is enqueued. */
  default boolean involvesPeers() {
    return false;
  }

  /** Returns the steps to record when this step becomes part of a graph. */
  default List<Step> recordable() {
    return List.of(this);
  }

  /** Returns its collectives of other lanes. */
  default List<CollectOn> onOtherLanes() {
    return List.of();
  }

  /** Returns the pinned memory that it uses, which a graph does not keep. */
  default List<PinnedBuffer> pinned() {
    return List.of();
  }

  /** Returns whether a graph can contain it. */
  default boolean isRecordable() {
    return true;
  }

  /** A collective. */
  record Collect(CollectiveCall what) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      lane.algorithms.check(what, first);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      lane.algorithms.enqueue(what, stream);
    }

    @Override
    public void compare(Lane lane) {
      lane.comparison.add(what);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream, boolean isCompared) {
      if (!isCompared) {
        enqueue(lane, stream);
        return;
      }
      int signature = lane.comparison.add(what);
      try {
        lane.algorithms.enqueue(what, signature, stream);
      } catch (InvalidUsage e) {
        lane.comparison.remove(what); // no algorithm supports it
        throw e;
      }
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
    public long bytes(int nRanks) {
      return what.totalBytes(nRanks);
    }

    @Override
    public boolean involvesPeers() {
      return true;
    }
  }

  /**
   * A collective of another lane, in the order of this one and of that one. It runs on this lane's
   * stream; that lane's stream waits for it.
   */
  record CollectOn(Lane other, CollectiveCall what) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      other.refuseIfOver();
      other.algorithms.check(what, false);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.waitFor(other.stream);
      other.algorithms.enqueue(what, stream);
      other.stream.waitFor(stream);
    }

    @Override
    public void compare(Lane lane) {
      other.comparison.add(what);
    }

    @Override
    public List<CollectOn> onOtherLanes() {
      return List.of(this);
    }

    @Override
    public long bytes(int nRanks) {
      return what.totalBytes(nRanks);
    }

    @Override
    public boolean involvesPeers() {
      return true;
    }

    @Override
    public boolean isRecordable() {
      return false;
    }
  }

  /** A kernel of the user. */
  record Launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) implements Step {
    public Launch {
      InvalidUsage.requireNonNull(kernel, "launch", "kernel");
      InvalidUsage.requireNonNull(args, "launch", "args");
    }

    @Override
    public void check(Lane lane, boolean first) {
      Device device = lane.communicator.device();
      if (kernel.kind() != device.kind() || gridDim < 1 || blockDim < 1) {
        throw InvalidUsage.of(
            "kernel %s <<<%d, %d>>> for %s on %s; give a kernel of the lane's kind of device, and 1"
                + " block and 1 thread or more",
            kernel.name(), gridDim, blockDim, kernel.kind(), device.description());
      }
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.launch(kernel, gridDim, blockDim, args);
    }
  }

  /** Any work that the user enqueues. */
  record Work(String name, Consumer<? super DeviceStream> what) implements Step {
    public Work {
      InvalidUsage.requireNonNull(name, "enqueue", "name");
      InvalidUsage.requireNonNull(what, "enqueue", "work");
    }

    @Override
    public void check(Lane lane, boolean first) {
      // Nothing can be checked before the work enqueues.
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      what.accept(stream);
    }
  }

  /** A copy within the device. */
  record Copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size)
      implements Step {
    public Copy {
      requireNonNull(target, source);
    }

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
    public CopyToHost {
      requireNonNull(target, source);
    }

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
    public CopyFromHost {
      requireNonNull(target, source);
    }

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

  /** A wait, on the device, for the work that another lane has enqueued so far. */
  record After(Lane other) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      other.refuseWhenClosed("after: the other lane is closed");
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.waitFor(other.stream);
    }

    @Override
    public boolean isRecordable() {
      return false;
    }
  }

  /** Returns how many collectives of all ranks they are. Allocates nothing. */
  static long rounds(List<Step> steps) {
    long rounds = 0;
    for (int i = 0; i < steps.size(); i++) {
      rounds += steps.get(i).rounds();
    }
    return rounds;
  }

  /**
   * Returns what to enqueue on a stream while its owner captures it: a captured pipeline as its
   * steps, for no graph is launched in a capture.
   *
   * @param checked whether the lane compares runs between ranks, which enqueues them later
   * @throws InvalidUsage if a graph can't contain them
   */
  static List<Step> forOwnersGraph(List<Step> steps, boolean checked) {
    if (checked) {
      throw new InvalidUsage(
          "collectives in checked mode are enqueued later and can't be captured by the stream's"
              + " owner; open the lane without withChecks");
    }
    List<Step> all = steps.stream().flatMap(step -> step.recordable().stream()).toList();
    if (!all.stream().allMatch(Step::isRecordable)) {
      throw new InvalidUsage(
          "after() and collectives of another lane can't be captured by the stream's owner: they"
              + " wait for work outside of the graph; enqueue them before or after the capture");
    }
    return all;
  }

  private static void requireNonNull(Object target, Object source) {
    InvalidUsage.requireNonNull(target, "copy", "target");
    InvalidUsage.requireNonNull(source, "copy", "source");
  }

  private static void requirePart(
      Lane lane, String what, DeviceBuffer buffer, long offset, long size) {
    if (buffer.device() != lane.communicator.device()) {
      throw InvalidUsage.of(
          "%sthe %s is memory of %s, not of the communicator's device, %s",
          copyOn(lane),
          what,
          buffer.device().description(),
          lane.communicator.device().description());
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
      throw InvalidUsage.of(
          "%s%s range offset=%d size=%d of a buffer of %d bytes",
          copyOn(lane), what, offset, size, all);
    }
  }

  private static String copyOn(Lane lane) {
    return "copy on rank " + lane.peers.topology().rank() + ": ";
  }
}
