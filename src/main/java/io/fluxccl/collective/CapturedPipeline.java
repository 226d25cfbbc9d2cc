// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.RetainedBuffers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import reactor.core.publisher.Mono;

/**
 * A {@link Pipeline} that was recorded: a CUDA graph on a GPU, a prepared plan on the host device.
 * Each run enqueues it as one launch, with the buffers, the kernels' arguments and the algorithms
 * of the recording. Any thread may run it, any number of times: runs execute in the order of their
 * enqueueing.
 *
 * <p>A pipeline that waits {@linkplain Pipeline#after for another lane}, or has a collective of
 * one, is recorded as several graphs with those steps between them.
 *
 * <p>It keeps the device buffers that it uses. It does not keep the registrations that were open
 * when it was recorded, nor the pinned memory that it copies to or from. Runs fail with {@link
 * InvalidUsage} after one of these, this pipeline or the lane is closed. Pinned memory that its
 * kernels use must stay open as long as this pipeline.
 */
public final class CapturedPipeline implements AutoCloseable {
  final Lane lane;
  private final List<Step> source;
  private final List<CollectiveCall> calls;
  private final List<Step.CollectOn> onOtherLanes;
  private final int rounds;
  private final long bytes;
  private final List<Registration> registrations;
  private final List<PinnedBuffer> pinned;
  private final List<Step> plan;
  private final Lifecycle lifecycle = new Lifecycle("captured pipeline");

  /** This pipeline as a step of others. */
  final Step replay = new Replay(this);

  /** A graph keeps the buffers of its steps, but knows collectives' buffers by address only. */
  private final RetainedBuffers buffers = new RetainedBuffers();

  private CapturedPipeline(Lane lane, List<Step> source) {
    this.lane = lane;
    this.source = source;
    this.calls = source.stream().flatMap(step -> step.calls().stream()).toList();
    this.onOtherLanes = source.stream().flatMap(step -> step.onOtherLanes().stream()).toList();
    this.rounds = source.stream().mapToInt(Step::rounds).sum();
    int nRanks = lane.topology.nRanks();
    this.bytes = source.stream().mapToLong(step -> step.bytes(nRanks)).sum();
    Set<Registration> used = new LinkedHashSet<>();
    calls.forEach(call -> lane.registrations.addUsed(call, used));
    this.registrations = List.copyOf(used);
    this.pinned = source.stream().flatMap(step -> step.pinned().stream()).distinct().toList();
    lifecycle.own(() -> lane.communicator.device().whenEnqueuedWorkIsDone(buffers::release));
    List<Step> steps = new ArrayList<>();
    try {
      calls.stream().flatMap(call -> call.buffers().stream()).forEach(buffers::add);
      record(steps);
    } catch (RuntimeException | Error e) {
      lifecycle.close();
      throw e;
    }
    this.plan = List.copyOf(steps);
  }

  /** Records steps that were checked; under the lane's lock. */
  static CapturedPipeline of(Lane lane, List<Step> steps) {
    return new CapturedPipeline(
        lane, steps.stream().flatMap(step -> step.recordable().stream()).toList());
  }

  /** Records one graph for each sequence of steps between steps that a graph can't contain. */
  private void record(List<Step> to) {
    int begin = 0;
    for (int end = 0; end <= source.size(); end++) {
      if (end == source.size() || !source.get(end).isRecordable()) {
        if (end > begin) {
          to.add(new Graph(lifecycle.own(graph(source.subList(begin, end)))));
        }
        if (end < source.size()) {
          to.add(source.get(end));
        }
        begin = end + 1;
      }
    }
  }

  private DeviceGraph graph(List<Step> steps) {
    return lane.communicator
        .device()
        .record(toString(), stream -> steps.forEach(step -> step.enqueue(lane, stream)));
  }

  /**
   * Returns this pipeline as a cold Mono: subscribing enqueues one launch.
   *
   * @return as {@link Collectives} says
   */
  public Mono<Void> run() {
    return lane.run(List.of(replay), this);
  }

  /** Returns {@link #run()} with another time limit, as {@link Pipeline#run(Duration)}. */
  public Mono<Void> run(Duration limit) {
    return lane.run(List.of(replay), this, limit);
  }

  /**
   * Returns several consecutive runs that complete as one; {@link Pipeline#run(int)}.
   *
   * @param times 0 or more, within the limit of {@link Pipeline#run(int)}
   */
  public Mono<Void> run(int times) {
    return Pipeline.run(lane, List.of(replay), times, this);
  }

  /**
   * Frees the graph and releases its buffers after the runs enqueued before. Does not block.
   * Idempotent.
   */
  @Override
  public void close() {
    lane.close(this);
  }

  /** Closes it, or returns false if it was closed before. Called by the lane, between two runs. */
  boolean end() {
    if (!lifecycle.beginClose()) {
      return false;
    }
    lifecycle.closeChildren();
    return true;
  }

  @Override
  public String toString() {
    return "a captured pipeline of "
        + source.size()
        + " steps"
        + Lane.Others.describe(lane, source);
  }

  /** A launch of one graph. */
  private record Graph(DeviceGraph graph) implements Step {
    @Override
    public void check(Lane lane, boolean first) {}

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.launch(graph);
    }
  }

  /** A launch of all graphs of a captured pipeline. */
  record Replay(CapturedPipeline captured) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      if (captured.lifecycle.isClosed()) {
        throw new InvalidUsage(captured + ": closed");
      }
      for (Registration registration : captured.registrations) {
        if (!lane.registrations.has(registration)) {
          throw InvalidUsage.of(
              "%s: registration %d, with which it was recorded, is closed; capture it again",
              captured, registration.id());
        }
      }
      for (PinnedBuffer copied : captured.pinned) {
        if (copied.isClosed()) {
          throw InvalidUsage.of(
              "%s: pinned memory that it copies to or from is closed; capture one of open memory",
              captured);
        }
      }
      for (Step step : captured.plan) {
        step.check(lane, first);
      }
    }

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      for (Step step : captured.plan) {
        step.enqueue(lane, stream);
      }
    }

    @Override
    public void compare(Lane lane) {
      for (int i = 0; i < captured.source.size(); i++) {
        captured.source.get(i).compare(lane);
      }
    }

    @Override
    public List<CollectiveCall> calls() {
      return captured.calls;
    }

    @Override
    public int rounds() {
      return captured.rounds;
    }

    @Override
    public long bytes(int nRanks) {
      return captured.bytes;
    }

    @Override
    public boolean involvesPeers() {
      return !captured.calls.isEmpty() || !captured.onOtherLanes.isEmpty();
    }

    @Override
    public List<CollectOn> onOtherLanes() {
      return captured.onOtherLanes;
    }

    @Override
    public List<Step> recordable() {
      return captured.source;
    }
  }
}
