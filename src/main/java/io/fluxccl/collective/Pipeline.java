package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.ArrayList;
import java.util.List;
import reactor.core.publisher.Mono;

/**
 * Kernels, collectives and copies that are enqueued as one, in order, and completed by one signal
 * at their end; the host is not asked in between. Immutable: each method gives a longer pipeline.
 *
 * <pre>{@code
 * Mono<Void> step = collectives.pipeline()
 *     .launch(attention, grid, block, args).allReduce(hidden, FLOAT16, SUM)
 *     .launch(mlp, grid, block, args).allReduce(hidden, FLOAT16, SUM)
 *     .run();
 * }</pre>
 *
 * <p>All steps are looked at before the first is enqueued: sizes, ranges, devices. A mistake then
 * ends the run with {@link InvalidUsage} and harms no other rank. What fails later, in the middle,
 * aborts on every rank, because peers may wait already.
 *
 * <p>A pipeline belongs to the {@link Collectives} that made it and shares its order with
 * everything else that goes through that: as many pipelines, runs and subscribers as you like,
 * overlapping, from any thread, one whole run behind the other. All ranks must run the same
 * collectives in the same order. To let pipelines overlap each other, make them on different
 * {@linkplain Collectives#lane lanes}, and order them with {@link #after} where they must be.
 *
 * <p>Collectives have the same shapes as in {@link CollectiveCall}.
 */
public final class Pipeline implements CollectiveOperations<Pipeline> {
  /** Of one run: so many can be listed, and waited for. */
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
    List<Step> more = new ArrayList<>(steps.size() + next.size());
    more.addAll(steps);
    more.addAll(next);
    return new Pipeline(lane, List.copyOf(more));
  }

  /**
   * Then a kernel.
   *
   * @param kernel of the communicator's kind of device
   * @param gridDim blocks
   * @param blockDim threads a block
   * @param args its arguments; what they stand for must be open when it runs
   */
  public Pipeline launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    return with(new Step.Launch(kernel, gridDim, blockDim, args));
  }

  /** Then a copy within the device; offsets and size in bytes. */
  public Pipeline copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size) {
    return with(new Step.Copy(target, targetOffset, source, sourceOffset, size));
  }

  /** Then a copy from the device to pinned memory of the host; offsets and size in bytes. */
  public Pipeline copy(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size) {
    return with(new Step.CopyToHost(target, targetOffset, source, sourceOffset, size));
  }

  /** Then a copy from pinned memory of the host to the device; offsets and size in bytes. */
  public Pipeline copy(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size) {
    return with(new Step.CopyFromHost(target, targetOffset, source, sourceOffset, size));
  }

  /** Adds any collective. */
  public Pipeline then(CollectiveCall call) {
    return with(new Step.Collect(call));
  }

  @Override
  public Pipeline enqueue(CollectiveCall call) {
    return then(call);
  }

  /**
   * Then all of another pipeline.
   *
   * @param other made by the same {@link Collectives}
   * @throws InvalidUsage if it is of another lane; let that one run, and come {@link #after} it
   */
  public Pipeline then(Pipeline other) {
    requireOwn(other.lane);
    return with(other.steps);
  }

  /**
   * Then one launch of a captured pipeline.
   *
   * @param captured made by the same {@link Collectives}
   * @throws InvalidUsage if it is of another lane
   */
  public Pipeline then(CapturedPipeline captured) {
    requireOwn(captured.lane());
    return with(captured.step());
  }

  private void requireOwn(Lane other) {
    if (other != lane) {
      throw new InvalidUsage(
          "then: that pipeline is of another lane; steps of one pipeline are of one lane. Use"
              + " after() to wait for the other");
    }
  }

  /**
   * What comes next waits, on the device, for everything that the lanes of other pipelines have
   * enqueued when a run of this one is enqueued. Who subscribes to the others first, on every rank,
   * gets an order; the host waits for nothing, and steps before this one for nothing either.
   *
   * @param others of this process, on the same kind of device, made by this or another {@link
   *     Collectives}; those of this lane change nothing
   */
  public Pipeline after(Pipeline... others) {
    List<Step> waits = new ArrayList<>();
    for (Pipeline other : others) {
      if (other.lane.device().kind() != lane.device().kind()) {
        throw new InvalidUsage(
            "after: a pipeline on "
                + other.lane.device().description()
                + " and one on "
                + lane.device().description()
                + "; both must be on the same kind of device");
      }
      Step wait = new Step.After(other.lane);
      if (other.lane != lane && !waits.contains(wait)) {
        waits.add(wait);
      }
    }
    return with(waits);
  }

  /**
   * All of it as a cold Mono: subscribing enqueues it, as often as wanted. Without a step it
   * completes when what the lane has enqueued before is done. {@code run().toFuture()} enqueues it
   * at once and gives a CompletableFuture, whose {@code cancel} cancels the run.
   *
   * @return as {@link Collectives} says
   */
  public Mono<Void> run() {
    return run(1);
  }

  /**
   * Several runs, one behind the other, that are enqueued and complete as one, within one time
   * limit.
   *
   * @param times 0 or more, but not more than 2<sup>24</sup> steps in all. On a GPU, some hundred
   *     launches can be enqueued ahead; enqueueing more waits for it
   * @return as {@link #run()}; {@link InvalidUsage} if there are more steps
   */
  public Mono<Void> run(int times) {
    return run(lane, steps, times, this);
  }

  /** {@link #run(int)} of any steps, which are something. */
  static Mono<Void> run(Lane lane, List<Step> steps, int times, Object what) {
    if (times < 0) {
      throw new InvalidUsage("times=" + times + "; give 0 or more");
    }
    if (times == 1) {
      return lane.run(steps, what);
    }
    if ((long) steps.size() * times > MOST_STEPS) {
      return Mono.error(
          new InvalidUsage(
              what + " times=" + times + "; give no more than " + MOST_STEPS + " steps in all"));
    }
    List<Step> all = new ArrayList<>(steps.size() * times);
    for (int i = 0; i < times && !steps.isEmpty(); i++) {
      all.addAll(steps);
    }
    return lane.run(all, times + " times " + what);
  }

  /**
   * Records it, to be run as one launch. Set-up: takes milliseconds, in which nothing else of this
   * lane is enqueued; does nothing of what it records. The algorithms are chosen now, so every rank
   * must capture between the same registrations.
   *
   * @return what was recorded; the caller closes it
   * @throws InvalidUsage if a step can't be right, or the lane is closed
   * @throws io.fluxccl.DeviceFailure if the device can't make a graph of it
   */
  public CapturedPipeline capture() {
    return lane.capture(steps);
  }

  @Override
  public String toString() {
    return "a pipeline of " + steps.size() + " steps";
  }
}
