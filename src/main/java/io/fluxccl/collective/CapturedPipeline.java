package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.RetainedBuffers;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import reactor.core.publisher.Mono;

/**
 * A {@link Pipeline} that was recorded: on a GPU a CUDA graph, on the host device a prepared plan.
 * Each run enqueues it as one launch, with the buffers, the kernels' arguments and the algorithms
 * that it was recorded with. As often as wanted, from any thread, by several subscribers at once:
 * runs queue up behind each other.
 *
 * <p>Where the pipeline waits {@linkplain Pipeline#after for another lane} in its middle, it is as
 * many graphs as that leaves, with the wait between them.
 *
 * <p>It keeps the device's buffers that it uses. It needs the registrations that were open when it
 * was recorded, and the pinned memory that it copies to or from: once one of these is closed, runs
 * end with {@link InvalidUsage}, as they do once this, or the lane, is closed. Pinned memory that
 * its kernels use has to stay open as long as this.
 */
public final class CapturedPipeline implements AutoCloseable {
  private final Lane lane;
  private final List<Step> source;
  private final List<CollectiveCall> calls;
  private final int rounds;
  private final List<Registration> registrations;
  private final List<PinnedBuffer> pinned;
  private final List<Step> plan;
  private final List<DeviceGraph> graphs = new ArrayList<>();
  private final Step replay = new Replay(this);

  /** The graphs keep those that steps name, but know collectives' buffers by address only. */
  private final RetainedBuffers buffers = new RetainedBuffers();

  private volatile boolean closed;

  private CapturedPipeline(Lane lane, List<Step> source) {
    this.lane = lane;
    this.source = source;
    this.calls = source.stream().flatMap(step -> step.calls().stream()).toList();
    this.rounds = source.stream().mapToInt(Step::rounds).sum();
    Set<Registration> used = new LinkedHashSet<>();
    calls.forEach(call -> lane.registrations().addUsed(call, used));
    this.registrations = List.copyOf(used);
    this.pinned = source.stream().flatMap(step -> step.pinned().stream()).distinct().toList();
    List<Step> steps = new ArrayList<>();
    try {
      for (CollectiveCall call : calls) {
        keep(call.input());
        keep(call.output());
      }
      record(steps);
    } catch (RuntimeException | Error e) {
      letGo();
      throw e;
    }
    this.plan = List.copyOf(steps);
  }

  /** Records steps that were checked; under the lane's lock. */
  static CapturedPipeline of(Lane lane, List<Step> steps) {
    return new CapturedPipeline(
        lane, steps.stream().flatMap(step -> step.recordable().stream()).toList());
  }

  private void keep(DeviceBuffer buffer) {
    if (buffer != null) {
      buffers.add(buffer);
    }
  }

  private void letGo() {
    graphs.forEach(DeviceGraph::close);
    lane.device().whenEnqueuedWorkIsDone(buffers::release);
  }

  private void record(List<Step> to) {
    List<Step> together = new ArrayList<>();
    for (Step step : source) {
      if (step.isRecordable()) {
        together.add(step);
      } else {
        flush(together, to);
        to.add(step);
      }
    }
    flush(together, to);
  }

  private void flush(List<Step> together, List<Step> to) {
    if (!together.isEmpty()) {
      List<Step> recorded = List.copyOf(together);
      DeviceGraph graph =
          lane.device()
              .record(
                  toString(),
                  stream -> {
                    for (Step step : recorded) {
                      step.enqueue(lane, stream);
                    }
                  });
      graphs.add(graph);
      to.add(new Graph(graph));
      together.clear();
    }
  }

  /**
   * All of it as a cold Mono: subscribing enqueues one launch.
   *
   * @return as {@link Collectives} says
   */
  public Mono<Void> run() {
    return lane.run(List.of(replay), this);
  }

  /**
   * Several runs, one behind the other, that complete as one; {@link Pipeline#run(int)}.
   *
   * @param times 0 or more, and not too many, as there
   */
  public Mono<Void> run(int times) {
    return Pipeline.run(lane, List.of(replay), times, this);
  }

  /** It as a step of other pipelines. */
  Step step() {
    return replay;
  }

  Lane lane() {
    return lane;
  }

  /**
   * Lets go of the graph and what it keeps; runs enqueued before are not affected. Waits for
   * nothing. Idempotent.
   */
  @Override
  public void close() {
    lane.close(this);
  }

  /** False if it was closed before. Called by the lane, between two runs. */
  synchronized boolean end() {
    if (closed) {
      return false;
    }
    closed = true;
    letGo();
    return true;
  }

  @Override
  public String toString() {
    return "a captured pipeline of " + source.size() + " steps";
  }

  /** One launch. */
  private record Graph(DeviceGraph graph) implements Step {
    @Override
    public void check(Lane lane, boolean first) {}

    @Override
    public void enqueue(Lane lane, DeviceStream stream) {
      stream.launch(graph);
    }
  }

  /** All of a captured pipeline. */
  private record Replay(CapturedPipeline captured) implements Step {
    @Override
    public void check(Lane lane, boolean first) {
      if (captured.closed) {
        throw new InvalidUsage(captured + ": closed");
      }
      for (Registration registration : captured.registrations) {
        if (!lane.registrations().has(registration)) {
          throw new InvalidUsage(
              captured
                  + ": registration "
                  + registration.id()
                  + ", with which it was recorded, is closed; capture it again");
        }
      }
      for (PinnedBuffer copied : captured.pinned) {
        if (copied.isClosed()) {
          throw new InvalidUsage(
              captured
                  + ": pinned memory that it copies to or from is closed; capture one of open memory");
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
    public List<CollectiveCall> calls() {
      return captured.calls;
    }

    @Override
    public int rounds() {
      return captured.rounds;
    }

    @Override
    public boolean involvesPeers() {
      return !captured.calls.isEmpty();
    }

    @Override
    public List<Step> recordable() {
      return captured.source;
    }
  }
}
