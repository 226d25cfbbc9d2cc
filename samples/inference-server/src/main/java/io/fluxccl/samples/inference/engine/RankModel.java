// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CapturedSizes;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.Kernels.Use;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.TensorSource;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import reactor.core.publisher.Mono;

/**
 * One rank's part of a model. Of each layer it has some of the heads and some of the MLP's units.
 * It has rows of the projections into them and columns of the projections out of them. So the sum
 * over the ranks is the layer's output. Of the vocabulary it has some tokens.
 *
 * <p>A step is captured for several numbers of rows, and replayed with the current {@link
 * StepRows}. The weights are kept when a generation of the ranks ends; captured steps are not.
 */
final class RankModel implements Batch.Results, AutoCloseable {
  private static final StepRows.Row WARM_UP = new StepRows.Row(0, 0, 0, 0, 0, 1, 0);
  private static final int TIMED_RUNS = 5;
  private static final Duration PATIENCE = Duration.ofSeconds(30);

  private final LlamaConfig config;
  private final ModelOptions options;
  private final Kernels kernels;
  private final PinnedBuffer rows;
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private final List<RankWeights.Layer> layers = new ArrayList<>();

  private final Kernels.Weights embedding;
  private final Kernels.Weights lastGain;
  private final Kernels.Weights head;

  // Activations, a row for each row of a step.
  private final DeviceBuffer residual;
  private final DeviceBuffer normed;
  private final DeviceBuffer qkv;
  private final DeviceBuffer found;
  private final DeviceBuffer delta;
  private final DeviceBuffer gateAndUp;
  private final DeviceBuffer gated;

  private final Kernels.Choice choice;

  /** The logits of all ranks, if a request needs them; in the host's memory on rank 0 only. */
  private final DeviceBuffer allLogits;

  private final PinnedBuffer logitsHere;

  // Of this generation; null before the first one.
  private RankGroup group;
  private CapturedSizes steps;
  private CapturedSizes nucleusSteps;
  private CapturedSizes gathers;
  private double communicationShare;

  /** Whether a step that is captured has its all-reduces. */
  private boolean reduces = true;

  /** Loads this rank's weights. Blocks for as long as that takes. */
  RankModel(RankGroup group, LlamaConfig config, TensorSource weights, ModelOptions options) {
    config.requireDivisible(group.nRanks());
    this.config = config;
    this.options = options;
    this.group = group;
    Device device = group.device();
    int nRanks = group.nRanks();
    rows = device.allocatePinned(StepRows.memoryBytes(options.maxRows()));
    kernels =
        device.kind() == DeviceKind.CUDA
            ? new CudaKernels((CudaDevice) device, config, options, group.rank(), nRanks, rows)
            : new HostKernels(config, options, group.rank(), nRanks, rows);
    int vocabulary = config.vocabulary();
    RankWeights loader = new RankWeights(config, weights, kernels, group.rank(), nRanks);
    embedding =
        kernels.load(
            Use.READ, weights.get("model.embed_tokens.weight", vocabulary, config.hidden()));
    for (int i = 0; i < config.layers(); i++) {
      layers.add(loader.layer(i));
    }
    lastGain = kernels.load(Use.READ, weights.get("model.norm.weight", 1, config.hidden()));
    head =
        kernels.load(
            Use.LOGITS, loader.share(config.outputName(weights), vocabulary, config.hidden()));

    LlamaConfig.Heads heads = config.headsOf(group.rank(), nRanks);
    residual = allocate(DataType.FLOAT32.bytes((long) options.maxRows() * config.hidden()));
    normed = activations(config.hidden());
    qkv = activations(heads.ofAll() * config.headDim());
    found = activations(heads.count() * config.headDim());
    delta = activations(config.hidden());
    gateAndUp = activations(2 * config.intermediate() / nRanks);
    gated = activations(config.intermediate() / nRanks);
    choice =
        new Kernels.Choice(
            forChosen(DataType.FLOAT32, config.vocabulary() / nRanks),
            forChosen(DataType.FLOAT32, 1),
            forChosen(DataType.INT64, Nucleus.BINS),
            forChosen(DataType.INT64, Nucleus.BINS),
            forChosen(DataType.INT32, 1),
            forChosen(DataType.INT64, 1));
    allLogits = forChosen(DataType.FLOAT32, config.vocabulary());
    logitsHere =
        group.rank() == 0 ? device.allocatePinned(Math.toIntExact(allLogits.size())) : null;
  }

  /**
   * Returns whether this can continue in another generation: for the same rank, on the same device.
   */
  boolean fits(RankGroup next) {
    return next.device() == group.device()
        && next.rank() == group.rank()
        && next.nRanks() == group.nRanks();
  }

  /** Captures the steps of a generation, and forgets those of the last one. Blocks meanwhile. */
  void join(RankGroup next) {
    leave();
    // A step of the last generation may still write.
    Mono.<Void>create(sink -> next.device().whenEnqueuedWorkIsDone(sink::success)).block(PATIENCE);
    group = next;
    kernels.join(next);
    int[] sizes =
        IntStream.concat(
                IntStream.iterate(1, size -> size < options.maxRows(), size -> 2 * size),
                IntStream.of(options.maxRows()))
            .toArray();
    steps = CapturedSizes.of(sizes, size -> step(size, false));
    nucleusSteps = CapturedSizes.of(sizes, size -> step(size, true));
    steps.captureAll();
    nucleusSteps.captureAll();
    gathers = CapturedSizes.of(new int[] {1, options.maxSequences()}, this::gather).captureAll();
    // A rank that waits in a kernel would block another one that still loads on the same GPU, and
    // loading may take longer than a step's time limit.
    next.communicator().inFlight(next.bootstrap().barrier(Deadline.never())).join();
    communicationShare = measureCommunication();
  }

  /** Compares a step of one row with and without its all-reduces. Every rank calls this. */
  private double measureCommunication() {
    rows.buffer().putBytes(0, StepRows.command(List.of(WARM_UP), 1, 1));
    try (CapturedPipeline alone = withoutReduces(1)) {
      return Math.max(0, 1 - nanos(alone) / nanos(steps.atLeast(1)));
    }
  }

  /**
   * Captures a step without its all-reduces, whose results are wrong, to measure what they take.
   */
  CapturedPipeline withoutReduces(int size) {
    reduces = false;
    try {
      return step(size, false).capture();
    } finally {
      reduces = true;
    }
  }

  private static double nanos(CapturedPipeline pipeline) {
    pipeline.run(TIMED_RUNS).block();
    long begun = System.nanoTime();
    pipeline.run(TIMED_RUNS).block();
    return System.nanoTime() - begun;
  }

  double communicationShare() {
    return communicationShare;
  }

  private DeviceBuffer activations(int width) {
    return allocate(kernels.type().bytes((long) kernels.roomFor(options.maxRows()) * width));
  }

  private DeviceBuffer forChosen(DataType type, int width) {
    return allocate(type.bytes((long) options.maxSequences() * width));
  }

  private DeviceBuffer allocate(long bytes) {
    DeviceBuffer buffer = group.device().allocate(bytes);
    buffers.add(buffer);
    return buffer;
  }

  private Pipeline step(int size, boolean nucleus) {
    Pipeline step = kernels.embed(group.pipeline(), size, embedding, residual);
    step = kernels.addNorm(step, size, residual, null, layers.get(0).attentionGain(), normed);
    for (int i = 0; i < layers.size(); i++) {
      RankWeights.Layer layer = layers.get(i);
      boolean last = i == layers.size() - 1;
      step = kernels.multiply(step, size, normed, layer.qkv(), qkv);
      step = kernels.attend(step, size, i, layer.own(), qkv, found);
      step = kernels.multiply(step, size, found, layer.attentionOut(), delta);
      step = addNorm(step, size, layer.outBias(), layer.mlpGain());
      step =
          kernels.multiplyGated(
              step, size, normed, layer.gateAndUp(), layer.gateAndUpBias(), gateAndUp, gated);
      step = kernels.multiply(step, size, gated, layer.down(), delta);
      Kernels.Weights gain = last ? lastGain : layers.get(i + 1).attentionGain();
      step = addNorm(step, size, layer.downBias(), gain);
    }
    return choose(step, Math.min(size, options.maxSequences()), nucleus);
  }

  /** Adds what all ranks have of a product, and a bias, to the residual stream, and norms it. */
  private Pipeline addNorm(Pipeline before, int size, Kernels.Weights bias, Kernels.Weights gain) {
    boolean ofRanks = reduces && kernels.addsRanks(size);
    Pipeline summed =
        ofRanks
            ? before
            : reduce(before, delta, size, config.hidden(), kernels.type(), ReduceOp.SUM);
    Kernels.Delta added = new Kernels.Delta(delta, bias, ofRanks);
    return kernels.addNorm(summed, size, residual, added, gain, normed);
  }

  /** Adds the choice of the next tokens, which each rank begins with its part of the vocabulary. */
  private Pipeline choose(Pipeline before, int size, boolean nucleus) {
    Pipeline step = kernels.multiply(before, size, normed, head, choice.logits());
    if (nucleus) {
      step = kernels.most(step, size, choice);
      step = reduce(step, choice.most(), size, 1, DataType.FLOAT32, ReduceOp.MAX);
      for (int level = 0; level < 2; level++) {
        step = kernels.masses(step, size, level, choice);
        step = reduce(step, choice.masses(level), size, Nucleus.BINS, DataType.INT64, ReduceOp.SUM);
        step = kernels.limit(step, size, level, choice);
      }
    }
    step = kernels.best(step, size, nucleus, choice);
    step = reduce(step, choice.best(), size, 1, DataType.INT64, ReduceOp.MAX);
    return kernels.choose(step, size, choice);
  }

  private Pipeline gather(int size) {
    long count = (long) size * config.vocabulary() / group.nRanks();
    long bytes = DataType.FLOAT32.bytes(count * group.nRanks());
    Pipeline gathered =
        group.pipeline().allGather(choice.logits(), allLogits, count, DataType.FLOAT32);
    return logitsHere == null
        ? gathered
        : gathered.copy(logitsHere, 0, allLogits, 0, Math.toIntExact(bytes));
  }

  private Pipeline reduce(
      Pipeline before, DeviceBuffer buffer, int size, int width, DataType type, ReduceOp op) {
    DeviceBuffer part = buffer.slice(0, type.bytes((long) size * width));
    return reduces ? before.allReduce(part, type, op) : before;
  }

  /** Begins a step on this rank ({@link StepRows#command}). */
  Mono<Void> step(byte[] command) {
    rows.buffer().putBytes(0, command);
    int count = (command.length - StepRows.HEADER) / StepRows.ROW;
    Mono<Void> run = (StepRows.hasNucleus(command) ? nucleusSteps : steps).atLeast(count).run();
    int logits = StepRows.logitRows(rows.buffer());
    return logits == 0 ? run : Mono.when(run, gathers.atLeast(logits).run());
  }

  /** Returns the token that follows a chosen row, after its step. */
  @Override
  public int next(int row) {
    return rows.buffer()
        .getInt(StepRows.nextOffset(options.maxRows(), row), ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns the logits of a chosen row, of all ranks, after a step that asked for them. */
  @Override
  public float[] allLogits(int row) {
    int width = config.vocabulary() / group.nRanks();
    int size = gathers.sizeFor(StepRows.logitRows(rows.buffer()));
    float[] result = new float[config.vocabulary()];
    for (int token = 0; token < result.length; token++) {
      int at = (token / width * size + row) * width + token % width;
      result[token] = logitsHere.buffer().getFloat(at * Float.BYTES, ByteOrder.LITTLE_ENDIAN);
    }
    return result;
  }

  /** Returns the logits of a chosen row for this rank's part of the vocabulary; for tests. */
  float[] logits(int row) {
    int width = config.vocabulary() / group.nRanks();
    float[] result = new float[width];
    ByteBuffer bytes = ByteBuffer.allocate(width * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    choice.logits().download(DataType.FLOAT32.bytes((long) row * width), bytes);
    bytes.flip().asFloatBuffer().get(result);
    return result;
  }

  /** Forgets the steps of this generation. */
  void leave() {
    Stream.of(steps, nucleusSteps, gathers).filter(Objects::nonNull).forEach(CapturedSizes::close);
  }

  @Override
  public void close() {
    leave();
    kernels.close();
    buffers.forEach(DeviceBuffer::close);
    rows.close();
    if (logitsHere != null) {
      logitsHere.close();
    }
  }
}
