// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.WRITE;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.training.Checkpoint;
import io.fluxccl.training.GradientReducer;
import io.fluxccl.training.ParameterSync;
import io.fluxccl.training.ShardedSampler;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.openblas.global.openblas_nolapack;
import org.bytedeco.pytorch.global.torch;

/** Trains a small GPT with PyTorch; gradients are averaged while the backward pass runs. */
public final class GptTraining {
  private static final int EXAMPLES = 4096;
  private static final int[] TESTS = IntStream.range(EXAMPLES, EXAMPLES + 64).toArray();
  private static final int REPORT_STEPS = 20;
  private static final long POLL_NANOS = 10_000_000;

  /** Steps that the time of a step leaves out, because the JVM compiles meanwhile. */
  private static final int WARM_UP = 20;

  private final long goal;
  private final int batch;
  private final Checkpoint checkpoint;
  private final Path timeline;
  private Gpt gpt;
  private long position;

  private GptTraining(String[] arguments) {
    goal = Long.parseLong(arguments[0]);
    batch = Integer.parseInt(arguments[1]);
    checkpoint = Checkpoint.in(Path.of(arguments[2]), 2);
    timeline = arguments.length > 3 ? Path.of(arguments[3]) : null;
  }

  /**
   * Arguments: the examples of all ranks together, the examples of a rank in a step, a folder for
   * checkpoints, and maybe a file for a picture of one step of rank 0.
   */
  public static void main(String[] arguments) throws IOException {
    JoinOptions options = JoinOptions.fromEnvironment().withDevice(DeviceChoice.HOST);
    // The ranks of a host load PyTorch in turn, after the first one has unpacked it.
    Duration limit = options.joinTimeout().multipliedBy(4);
    loadPyTorch(limit);
    HealingJob.run(options.withJoinTimeout(limit), new GptTraining(arguments)::run);
  }

  /**
   * Loads PyTorch, one process of a host at a time. The first process unpacks its libraries, and
   * others would crash if they loaded half of a file.
   */
  private static void loadPyTorch(Duration limit) throws IOException {
    Path file = Loader.getCacheDir().toPath().resolve("data-parallel.lock");
    try (FileChannel channel = FileChannel.open(file, CREATE, WRITE)) {
      Deadline deadline = Deadline.after(limit);
      while (channel.tryLock() == null) { // until the channel is closed
        if (deadline.expired()) {
          throw Timeout.of(
              FluxCclException.NO_RANK,
              "another process has held the lock %s for over %s s; end it (lslocks shows its id)",
              file,
              limit.toSeconds());
        }
        LockSupport.parkNanos(POLL_NANOS);
      }
      Loader.load(torch.class);
    }
  }

  /** Trains until the goal or until this generation fails; the next one then continues. */
  private void run(RankGroup group, NamedCollectives named) throws IOException {
    // One thread for each rank; others would spin on the cores of other ranks.
    torch.set_num_threads(1); // of the thread that calls it
    openblas_nolapack.blas_set_num_threads(1);
    if (gpt == null) {
      gpt = new Gpt(group.device());
      Long newest = checkpoint.newest().block();
      position = newest == null ? 0 : checkpoint.read(newest, state()).block();
    }
    try (GradientReducer reducer = GradientReducer.of(named, gpt.gradients.layers())) {
      position = ParameterSync.of(group, state()).restore(position).block();
      System.out.println("resumed at example " + position);
      train(group, reducer);
    }
  }

  private Map<String, FloatView> state() {
    return Map.of("weights", gpt.weights.view, "momenta", gpt.momenta.view);
  }

  private void train(RankGroup group, GradientReducer reducer) throws IOException {
    ShardedSampler sampler = new ShardedSampler(EXAMPLES, 1);
    List<Long> nanos = new ArrayList<>();
    for (int steps = 1; position < goal; steps++) {
      ShardedSampler.Step next = sampler.step(position, group.nRanks(), batch);
      boolean isDrawn = timeline != null && steps == 5 * WARM_UP && group.rank() == 0;
      long start = System.nanoTime();
      int[] own = next.examplesOf(group.rank());
      float weight = (float) own.length * group.nRanks() / (next.next() - position);
      step(own, weight, reducer, isDrawn);
      nanos.add(System.nanoTime() - start);
      position = next.next();
      if (steps % REPORT_STEPS == 0 && group.rank() == 0) {
        checkpoint.write(position, state()).block();
        System.out.println("example " + position + ": loss " + loss());
      }
    }
    List<Long> timed = nanos.subList(Math.min(WARM_UP, nanos.size() - 1), nanos.size());
    System.out.println("final loss " + loss());
    System.out.println(
        "step ms: mean "
            + timed.stream().mapToLong(Long::longValue).average().orElse(0) / 1e6
            + " least "
            + Collections.min(timed) / 1e6);
  }

  private void step(int[] examples, float weight, GradientReducer reducer, boolean isDrawn)
      throws IOException {
    // Frees the tensors of the step.
    try (PointerScope scope = new PointerScope()) {
      Timeline times = new Timeline();
      gpt.backward(
          examples,
          weight,
          layer -> {
            Runnable end = times.begin(layer);
            reducer.ready(layer).subscribe(null, failure -> {}, end);
          });
      times.endBackward();
      reducer.finish().block();
      gpt.update();
      if (isDrawn) {
        times.write(timeline);
      }
    }
  }

  private float loss() {
    try (PointerScope scope = new PointerScope()) {
      return gpt.evaluate(TESTS);
    }
  }
}
