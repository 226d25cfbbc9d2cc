// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.DeviceView;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import reactor.core.publisher.Mono;

/**
 * Kernels, collectives and copies that are enqueued together, in order, and completed by one signal
 * at their end, without a round trip to the host in between. Immutable: each method returns a
 * longer pipeline.
 *
 * <pre>{@code
 * Mono<Void> step = collectives.pipeline()
 *     .launch(attention, grid, block, args).allReduce(hidden, FLOAT16, SUM)
 *     .launch(mlp, grid, block, args).allReduce(hidden, FLOAT16, SUM)
 *     .run();
 * }</pre>
 *
 * <p>All steps are checked before the first is enqueued: sizes, ranges, devices. An invalid step
 * ends the run with {@link InvalidUsage} and harms no other rank. A failure after that aborts on
 * every rank, because peers may wait already.
 *
 * <p>A pipeline belongs to the {@link Collectives} that made it and shares its order with all other
 * operations of that object: any number of pipelines, runs and subscribers, from any thread. Runs
 * do not overlap each other. All ranks must run the same collectives in the same order. Pipelines
 * on different {@linkplain Collectives#lane lanes} may overlap; order them with {@link #after} if
 * necessary.
 *
 * <p>Collectives have the same shapes as in {@link CollectiveCall}.
 */
public final class Pipeline implements CollectiveOperations<Pipeline> {
  /** The most steps of one run, so that they fit a list and can be waited for. */
  private static final int MOST_STEPS = 1 << 24;

  private final Lane lane;
  private final List<Step> steps;

  Pipeline(Lane lane, List<Step> steps) {
    this.lane = lane;
    this.steps = steps;
  }

  private Pipeline with(Step step) {
    return with(List.of(step));
  }

  private Pipeline with(List<Step> next) {
    return new Pipeline(lane, Stream.concat(steps.stream(), next.stream()).toList());
  }

  /**
   * Adds a kernel.
   *
   * @param kernel of the communicator's kind of device
   * @param gridDim blocks
   * @param blockDim threads a block
   * @param args its arguments; their buffers must be open when it runs
   */
  public Pipeline launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    return with(Step.launch(kernel, gridDim, blockDim, args));
  }

  /**
   * Adds work that is neither a kernel nor a copy of this library, such as a {@link
   * io.fluxccl.matmul.MatrixProduct} or calls of another library on {@link
   * io.fluxccl.device.cuda.CudaStream#handle()}. Each run calls it once, to enqueue; {@link
   * #capture} calls it once to record, and runs of the captured pipeline don't call it.
   *
   * <p>It is called with the lane's lock held, after the steps before it were enqueued. It must
   * only enqueue, never wait for the stream or for another rank, and not use collectives. An
   * exception that it throws aborts the run on every rank, because peers may wait already. It keeps
   * its buffers open itself, unless it is captured and uses methods of this library.
   *
   * @param name for messages
   * @param work enqueues on the stream that it gets: the lane's, or the one that records. It may
   *     use the stream only during the call
   */
  public Pipeline enqueue(String name, Consumer<? super DeviceStream> work) {
    return with(Step.work(name, work));
  }

  /** Copies all elements of a view to a view of the same type and size. */
  public Pipeline copy(DeviceView target, DeviceView source) {
    InvalidUsage.requireNonNull(target, "copy", "target");
    InvalidUsage.requireNonNull(source, "copy", "source");
    if (target.type() != source.type() || target.size() != source.size()) {
      throw InvalidUsage.of("copy from %s to %s; give views of one type and size", source, target);
    }
    return copy(target.buffer(), 0, source.buffer(), 0, source.buffer().size());
  }

  /** Adds a copy within the device; offsets and size in bytes. */
  public Pipeline copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size) {
    return with(
        Step.copy(
            Step.Range.of("target", target, targetOffset, size),
            Step.Range.of("source", source, sourceOffset, size),
            stream -> stream.copy(target, targetOffset, source, sourceOffset, size)));
  }

  /** Adds a copy from the device to pinned memory of the host; offsets and size in bytes. */
  public Pipeline copy(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size) {
    return with(
        Step.copy(
            Step.Range.of("target", target, targetOffset, size),
            Step.Range.of("source", source, sourceOffset, size),
            stream -> stream.copy(target, targetOffset, source, sourceOffset, size)));
  }

  /** Adds a copy from pinned memory of the host to the device; offsets and size in bytes. */
  public Pipeline copy(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size) {
    return with(
        Step.copy(
            Step.Range.of("target", target, targetOffset, size),
            Step.Range.of("source", source, sourceOffset, size),
            stream -> stream.copy(target, targetOffset, source, sourceOffset, size)));
  }

  /** Adds any collective. */
  public Pipeline then(CollectiveCall call) {
    return with(new Step.Collect(AlgorithmSelector.requireBuffers(call, topology())));
  }

  /**
   * Adds a collective of another group or lane. It runs after the steps added before and before the
   * steps added later. It also takes its turn in the order of the other lane, whose later
   * operations wait for it. Its ranks must enqueue it in the same order among the operations of
   * that lane. In checked mode it is not compared.
   *
   * <p>All ranks must also use the lanes in the same order. If one rank runs a collective of lane A
   * before one of B, and another rank B before A, both wait until the time limit.
   *
   * @param other of this job and on this rank's device: a lane, a sub-group's collectives, or those
   *     of the group that this one is a sub-group of
   * @param call as for {@link #then(CollectiveCall)}, with the ranks of {@code other}
   * @throws InvalidUsage if {@code other} belongs to another job or device, or a buffer is missing
   */
  public Pipeline then(Collectives other, CollectiveCall call) {
    InvalidUsage.requireNonNull(other, "then", "other");
    if (other.lane == lane) {
      return then(call);
    }
    if (other.lane.communicator.device() != lane.communicator.device()
        || other.lane.communicator.bootstrap().job() != lane.communicator.bootstrap().job()) {
      throw new InvalidUsage(
          "then: those collectives belong to another job or device; give a lane or a sub-group of"
              + " this rank's group");
    }
    return with(
        new Step.CollectOn(other.lane, AlgorithmSelector.requireBuffers(call, other.topology())));
  }

  @Override
  public RankTopology topology() {
    return lane.topology;
  }

  @Override
  public Pipeline enqueue(CollectiveCall call) {
    return then(call);
  }

  /**
   * Adds all steps of another pipeline.
   *
   * @param other made by the same {@link Collectives}
   * @throws InvalidUsage if it belongs to another lane; run that pipeline, and wait for it by
   *     {@link #after}
   */
  public Pipeline then(Pipeline other) {
    InvalidUsage.requireNonNull(other, "then", "other");
    requireOwn(other.lane);
    return with(other.steps);
  }

  /**
   * Adds one launch of a captured pipeline.
   *
   * @param captured made by the same {@link Collectives}
   * @throws InvalidUsage if it belongs to another lane
   */
  public Pipeline then(CapturedPipeline captured) {
    InvalidUsage.requireNonNull(captured, "then", "captured");
    requireOwn(captured.lane);
    return with(captured.replay);
  }

  private void requireOwn(Lane other) {
    if (other != lane) {
      throw new InvalidUsage(
          "then: that pipeline belongs to another lane, and a pipeline has steps of one lane only;"
              + " use after() to wait for the other");
    }
  }

  /**
   * Makes the steps added next wait, on the device, for all work that the lanes of other pipelines
   * have enqueued by the time that a run of this one is enqueued. Subscribe to the others first, on
   * every rank, to get a fixed order. Neither the host nor the steps added before wait.
   *
   * @param others of this process, on the same kind of device, made by this or another {@link
   *     Collectives}; those of this lane change nothing
   */
  public Pipeline after(Pipeline... others) {
    List<Step> waits = new ArrayList<>();
    for (Pipeline other : others) {
      InvalidUsage.requireNonNull(other, "after", "others");
      if (other.lane.communicator.device().kind() != lane.communicator.device().kind()) {
        throw InvalidUsage.of(
            "after: a pipeline on %s and one on %s; both must be on the same kind of device",
            other.lane.communicator.device().description(),
            lane.communicator.device().description());
      }
      Step wait = new Step.After(other.lane);
      if (other.lane != lane && !waits.contains(wait)) {
        waits.add(wait);
      }
    }
    return with(waits);
  }

  /**
   * Returns this pipeline as a cold Mono: each subscription enqueues it. Without a step it
   * completes when all earlier work of the lane is done. {@code run().toFuture()} enqueues it at
   * once and returns a CompletableFuture, whose {@code cancel} cancels the subscription.
   *
   * @return as {@link Collectives} says
   */
  public Mono<Void> run() {
    return run(1);
  }

  /**
   * Returns {@link #run()} with another time limit than the one of the options.
   *
   * @param limit how long a run may take, more than zero; {@link io.fluxccl.Deadline#NO_LIMIT}: for
   *     ever
   * @throws InvalidUsage if it is not more than zero
   */
  public Mono<Void> run(Duration limit) {
    return lane.run(steps, this, limit);
  }

  /**
   * Returns several consecutive runs that are enqueued and complete as one, within one time limit.
   *
   * @param times 0 or more, but not more than 2<sup>24</sup> steps in all. On a GPU, some hundred
   *     launches can be enqueued ahead; enqueueing more blocks until the GPU catches up
   * @return as {@link #run()}; {@link InvalidUsage} if there are more steps
   */
  public Mono<Void> run(int times) {
    return run(lane, steps, times, this);
  }

  /** Returns several runs of any steps; {@code what} describes them in messages. */
  static Mono<Void> run(Lane lane, List<Step> steps, int times, Object what) {
    if (times < 0) {
      throw new InvalidUsage("times=" + times + "; give 0 or more");
    }
    if (times == 1) {
      return lane.run(steps, what);
    }
    if ((long) steps.size() * times > MOST_STEPS) {
      return Mono.error(
          InvalidUsage.of(
              "%s times=%d; give no more than %d steps in all", what, times, MOST_STEPS));
    }
    List<Step> all = new ArrayList<>(steps.size() * times);
    for (int i = 0; i < times && !steps.isEmpty(); i++) {
      all.addAll(steps);
    }
    return lane.run(all, times + " times " + what);
  }

  /**
   * Records this pipeline, to be run as one launch, without executing it. That takes milliseconds,
   * during which nothing else of this lane is enqueued. The algorithms are chosen now, so every
   * rank must capture between the same registrations.
   *
   * @return the recorded pipeline; the caller closes it
   * @throws InvalidUsage if a step is invalid, or the lane is closed
   * @throws io.fluxccl.DeviceFailure if the device can't record it as a graph
   */
  public CapturedPipeline capture() {
    return lane.capture(steps);
  }

  @Override
  public String toString() {
    return "a pipeline of " + steps.size() + " steps" + Lane.Others.describe(lane, steps);
  }
}
