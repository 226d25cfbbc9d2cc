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
import java.util.stream.Stream;

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

  /** Returns the collective that the flight recorder shows for a run of this step, or null. */
  default CollectiveCall recorded() {
    return null;
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
    public CollectiveCall recorded() {
      return what;
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

  /**
   * Work on this rank's device alone.
   *
   * @param checks refuses an invalid step
   * @param work enqueues it
   * @param pinned as {@link Step#pinned}
   */
  record Local(
      Consumer<Lane> checks, Consumer<? super DeviceStream> work, List<PinnedBuffer> pinned)
      implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      checks.accept(lane);
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      work.accept(stream);
    }
  }

  /** Returns a kernel of the user. */
  static Step launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    InvalidUsage.requireNonNull(kernel, "launch", "kernel");
    InvalidUsage.requireNonNull(args, "launch", "args");
    return new Local(
        lane -> {
          Device device = lane.communicator.device();
          if (kernel.kind() != device.kind() || gridDim < 1 || blockDim < 1) {
            throw InvalidUsage.of(
                "kernel %s <<<%d, %d>>> for %s on %s; give a kernel of the lane's kind of device,"
                    + " and 1 block and 1 thread or more",
                kernel.name(), gridDim, blockDim, kernel.kind(), device.description());
          }
        },
        stream -> stream.launch(kernel, gridDim, blockDim, args),
        List.of());
  }

  /** Returns any work that the user enqueues; nothing can be checked before it enqueues. */
  static Step work(String name, Consumer<? super DeviceStream> what) {
    InvalidUsage.requireNonNull(name, "enqueue", "name");
    InvalidUsage.requireNonNull(what, "enqueue", "work");
    return new Local(lane -> {}, what, List.of());
  }

  /** Returns a copy within the device, or between the device and the host's memory. */
  static Step copy(Range target, Range source, Consumer<? super DeviceStream> work) {
    return new Local(
        lane -> {
          target.check(lane, "target");
          source.check(lane, "source");
        },
        work,
        Stream.of(target, source).flatMap(Range::pinned).toList());
  }

  /**
   * A range that a copy reads or writes.
   *
   * @param device the memory, or null if it is the host's
   * @param host the memory, or null if it is the device's
   * @param offset of the range
   * @param size of the range
   */
  record Range(DeviceBuffer device, PinnedBuffer host, long offset, long size) {
    static Range of(String what, DeviceBuffer buffer, long offset, long size) {
      return new Range(InvalidUsage.requireNonNull(buffer, "copy", what), null, offset, size);
    }

    static Range of(String what, PinnedBuffer buffer, long offset, long size) {
      return new Range(null, InvalidUsage.requireNonNull(buffer, "copy", what), offset, size);
    }

    Stream<PinnedBuffer> pinned() {
      return Stream.ofNullable(host);
    }

    /** Refuses the range. Allocates nothing if it is valid. */
    void check(Lane lane, String what) {
      if (device != null && device.device() != lane.communicator.device()) {
        throw InvalidUsage.of(
            "copy on rank %d: the %s is memory of %s, not of the communicator's device, %s",
            lane.topology.rank(),
            what,
            device.device().description(),
            lane.communicator.device().description());
      }
      if (device != null ? device.isClosed() : host.isClosed()) {
        throw InvalidUsage.of("copy on rank %d: the %s is closed", lane.topology.rank(), what);
      }
      long all = device != null ? device.size() : host.size();
      if (offset < 0 || size < 0 || offset > all - size) {
        throw InvalidUsage.of(
            "copy on rank %d: %s range offset=%d size=%d of a buffer of %d bytes",
            lane.topology.rank(), what, offset, size, all);
      }
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
}
