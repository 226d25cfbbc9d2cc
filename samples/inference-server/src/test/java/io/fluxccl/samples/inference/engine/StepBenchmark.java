// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static io.fluxccl.samples.inference.engine.ModelOptions.PAGE;

import io.fluxccl.DataType;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.Rope;
import io.fluxccl.samples.inference.model.SafeTensors;
import io.fluxccl.samples.inference.model.TensorSource;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import reactor.core.publisher.Mono;

/**
 * Measures steps of a model whose ranks are all in this JVM, and checks the results. A row must get
 * equal bits, and a prompt equal tokens, alone and in a batch. For a model of a folder, they must
 * equal those of the host device.
 *
 * <pre>
 *   StepBenchmark MODEL_FOLDER|8b [--device auto|cuda|host] [--ranks N] [--rows 1,8,64]
 *       [--steps 50] [--context 512] [--check 12] [--prompt ID,ID,... [--tokens 32]]
 *       [--communication yes] [--share 1] [--prefill 2048]
 * </pre>
 *
 * <p>With {@code --share 4} the model has the shape of one of 4 ranks' parts of an 8B: one GPU then
 * shows what such a rank computes, without communication.
 *
 * <p>With {@code --prefill} it also measures the time from a prompt of that length to its first
 * token, in steps of as many rows as the most of {@code --rows}.
 *
 * <p>With {@code --communication} it also runs each step without its all-reduces, whose time is the
 * difference.
 */
public final class StepBenchmark {
  private static final int WARM_UP_STEPS = 20;

  /** Prompts of a measurement, whose median counts; the first ones also warm up. */
  private static final int PREFILLS = 11;

  private final Map<String, String> options = new HashMap<>();
  private final int[] rowCounts;
  private final int steps;
  private final int context;
  private final LlamaConfig config;
  private final TensorSource weights;
  private final boolean isRandom;

  private StepBenchmark(String[] args) throws IOException {
    for (int i = 1; i + 1 < args.length; i += 2) {
      options.put(args[i], args[i + 1]);
    }
    rowCounts = numbers("--rows", "1,8,64");
    steps = Integer.parseInt(options.getOrDefault("--steps", "50"));
    isRandom = args[0].equals("8b");
    config =
        isRandom
            ? llama8b(Integer.parseInt(options.getOrDefault("--share", "1")))
            : LlamaConfig.read(Path.of(args[0]));
    weights = isRandom ? randomWeights() : SafeTensors.open(Path.of(args[0]));
    int wanted = Integer.parseInt(options.getOrDefault("--context", "512"));
    context = Math.min(config.context(), wanted) / PAGE * PAGE;
  }

  /** Runs it. */
  public static void main(String[] args) throws IOException {
    new StepBenchmark(args).run();
    System.exit(0);
  }

  private int[] numbers(String option, String otherwise) {
    return Arrays.stream(options.getOrDefault(option, otherwise).split(","))
        .mapToInt(Integer::parseInt)
        .toArray();
  }

  private static LlamaConfig llama8b(int ranks) {
    int headDim = 128;
    float[] frequencies = new float[headDim / 2];
    for (int i = 0; i < frequencies.length; i++) {
      frequencies[i] = (float) Math.pow(500_000, -2.0 * i / headDim);
    }
    return new LlamaConfig(
        4096,
        14336 / ranks,
        Collections.nCopies(32, 0),
        32 / ranks,
        8 / ranks,
        headDim,
        128_256 / ranks,
        8192,
        1e-5f,
        new Rope(frequencies, 1),
        Set.of(),
        false,
        Set.of());
  }

  /** All matrices have the same numbers, of which a GPU gets a copy for each. */
  private TensorSource randomWeights() {
    Random random = new Random(1);
    byte[] block = new byte[(1 << 21) - 14]; // its length divides no row's
    ByteBuffer numbers = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
    while (numbers.hasRemaining()) {
      float number = 0.02f * (float) random.nextGaussian();
      numbers.putShort((short) (Float.floatToRawIntBits(number) >>> 16));
    }
    ByteBuffer matrix = ByteBuffer.allocateDirect(config.vocabulary() * config.hidden() * 2);
    matrix.order(ByteOrder.LITTLE_ENDIAN);
    while (matrix.hasRemaining()) {
      matrix.put(block, 0, Math.min(block.length, matrix.remaining()));
    }
    ByteBuffer gain = ByteBuffer.allocate(config.hidden() * 2).order(ByteOrder.LITTLE_ENDIAN);
    while (gain.hasRemaining()) {
      gain.putShort((short) (Float.floatToRawIntBits(1) >>> 16));
    }
    return new TensorSource() {
      @Override
      public boolean has(String name) {
        return true;
      }

      @Override
      public HostMatrix[] rows(String name, int rows, int cols, int from, int count) {
        ByteBuffer data = rows == 1 ? gain : matrix;
        long first = (long) from * cols;
        return new HostMatrix[] {new HostMatrix(data, DataType.BFLOAT16, count, cols, cols, first)};
      }
    };
  }

  private void run() {
    int nRanks = Integer.parseInt(options.getOrDefault("--ranks", "1"));
    DeviceChoice device = DeviceChoice.parse(options.getOrDefault("--device", "auto"));
    int maxRows = Math.max(16, Arrays.stream(rowCounts).max().orElseThrow());
    int prefill = Integer.parseInt(options.getOrDefault("--prefill", "0"));
    int pages = Math.max(maxRows * (context / PAGE), prefill / PAGE + 1);
    ModelOptions limits = new ModelOptions(maxRows, maxRows, pages, 1000);
    long begun = System.nanoTime();
    try (LocalModels models = LocalModels.open(nRanks, device, config, weights, limits)) {
      System.out.printf(
          "%d ranks on %s, ready after %.1f s%n",
          nRanks, models.device(), (System.nanoTime() - begun) / 1e9);
      checkRows(models, maxRows);
      checkBatches(models);
      List<Integer> tokens = new ArrayList<>();
      List<float[]> logits = new ArrayList<>();
      if (options.containsKey("--prompt")) {
        tokens = generate(models, logits);
        System.out.println("tokens " + tokens);
      }
      if (options.containsKey("--prompt") && !isRandom && !device.equals(DeviceChoice.HOST)) {
        compare(limits, tokens, logits);
      }
      if (prefill > 0) {
        prefill(models, maxRows, prefill);
      }
      fillPageTable(models, maxRows);
      for (int rows : rowCounts) {
        measure(models, nRanks, rows, 0);
        measure(models, nRanks, rows, 0.8f);
      }
    }
  }

  /** Compares a row's logits, bit by bit, alone and in several places of steps of several sizes. */
  private void checkRows(LocalModels models, int maxRows) {
    float[] alone = null;
    int compared = 0;
    int same = 0;
    for (int count = 1; count <= maxRows; count = count < 4 ? count + 1 : count * 2 - 1) {
      for (int place : new int[] {0, count / 2, count - 1}) {
        List<StepRows.Row> rows = new ArrayList<>();
        for (int i = 0; i < count; i++) {
          int token = i == place ? 7 : (i * 131 + count) % config.vocabulary();
          rows.add(new StepRows.Row(token, 0, i, i * context, 0, 1, 0));
        }
        models.step(StepRows.command(rows, count, count));
        float[] logits = models.logits(place);
        alone = alone == null ? logits : alone;
        compared++;
        same += Arrays.equals(alone, logits) && Float.isFinite(logits[0]) ? 1 : 0;
      }
    }
    System.out.printf(
        "a row's logits in %d of %d places of steps of 1 to %d rows have the same bits: %s%n",
        same, compared, maxRows, same == compared ? "OK" : "WRONG");
  }

  private void checkBatches(LocalModels models) {
    int count = Integer.parseInt(options.getOrDefault("--check", "12"));
    Random random = new Random(3);
    List<int[]> prompts = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      prompts.add(random.ints(1 + random.nextInt(40), 0, config.vocabulary()).toArray());
    }
    for (Sampling sampling : List.of(Sampling.GREEDY, new Sampling(0.8f, 0.9f, 17))) {
      List<List<Integer>> together = models.generate(prompts, 24, sampling);
      int same = 0;
      for (int i = 0; i < count; i++) {
        List<Integer> alone = models.generate(List.of(prompts.get(i)), 24, sampling).get(0);
        same += alone.equals(together.get(i)) ? 1 : 0;
      }
      System.out.printf(
          "%s: %d of %d prompts got the same tokens alone and in a batch: %s%n",
          sampling, same, count, same == count ? "OK" : "WRONG");
    }
  }

  private List<Integer> generate(LocalModels models, List<float[]> logits) {
    int count = Integer.parseInt(options.getOrDefault("--tokens", "32"));
    int[] prompt = numbers("--prompt", "");
    return models
        .generate(List.of(prompt), count, Sampling.GREEDY, (index, row) -> logits.add(row))
        .get(0);
  }

  /** Compares the logits as long as the tokens before them are the same. */
  private void compare(ModelOptions limits, List<Integer> tokens, List<float[]> logits) {
    List<float[]> expected = new ArrayList<>();
    List<Integer> onHost;
    try (LocalModels host = LocalModels.open(1, DeviceChoice.HOST, config, weights, limits)) {
      onHost = generate(host, expected);
    }
    int same = 0;
    float most = 0;
    float largest = 0;
    while (same < tokens.size()) {
      float[] row = expected.get(same);
      for (int i = 0; i < row.length; i++) {
        most = Math.max(most, Math.abs(row[i] - logits.get(same)[i]));
        largest = Math.max(largest, Math.abs(row[i]));
      }
      if (!tokens.get(same).equals(onHost.get(same))) {
        break;
      }
      same++;
    }
    System.out.printf(
        "host   %s%nthe first %d of %d tokens are the host's; until there logits, up to %.3f,"
            + " differ by at most %.5f%n",
        onHost, same, tokens.size(), largest, most);
  }

  private StepRows.Row row(int sequence, int position, float temperature) {
    int slot = sequence * context + position;
    int token = (sequence * 31 + position) % config.vocabulary();
    return new StepRows.Row(token, position, sequence, slot, temperature, 0.9f, sequence);
  }

  /** Names every page once, as the rows of prompts would. */
  private void fillPageTable(LocalModels models, int sequences) {
    for (int position = 0; position < context; position += PAGE) {
      List<StepRows.Row> rows = new ArrayList<>();
      for (int sequence = 0; sequence < sequences; sequence++) {
        rows.add(row(sequence, position, 0));
      }
      models.step(StepRows.command(rows, sequences, 0));
    }
  }

  private void prefill(LocalModels models, int maxRows, int count) {
    List<int[]> prompt = List.of(new Random(5).ints(count, 0, config.vocabulary()).toArray());
    double[] millis = new double[PREFILLS];
    for (int i = 0; i < PREFILLS; i++) {
      long begun = System.nanoTime();
      if (models.generate(prompt, 1, Sampling.GREEDY).get(0).size() != 1) {
        throw new IllegalStateException("the prompt got no token");
      }
      millis[i] = (System.nanoTime() - begun) / 1e6;
    }
    Arrays.sort(millis);
    double median = millis[PREFILLS / 2];
    System.out.printf(
        "prefill of %d tokens, %d a step: %8.3f ms, %8.0f tokens/s%n",
        count, maxRows, median, count / median * 1e3);
  }

  private void measure(LocalModels models, int nRanks, int count, float temperature) {
    List<StepRows.Row> rows = new ArrayList<>();
    for (int sequence = 0; sequence < count; sequence++) {
      rows.add(row(sequence, context - 1, temperature));
    }
    byte[] command = StepRows.command(rows, count, count);
    double seconds = seconds(models.steps(command));
    double gigabytes = weightBytes() / 1e9 / nRanks;
    System.out.printf(
        "%4d rows, context %d, temperature %.1f: %8.3f ms a step, %8.0f tokens/s, %6.0f GB/s of"
            + " weights a rank%s%n",
        count,
        context,
        temperature,
        seconds * 1e3,
        count / seconds,
        gigabytes / seconds,
        options.containsKey("--communication") && temperature == 0
            ? communication(models, count, seconds)
            : "");
  }

  /** Each step but the first begins at the completion of the previous one, as in a server. */
  private double seconds(Mono<Void> step) {
    step.repeat(WARM_UP_STEPS - 1).blockLast();
    long begun = System.nanoTime();
    step.repeat(steps - 1).blockLast();
    return (System.nanoTime() - begun) / 1e9 / steps;
  }

  private String communication(LocalModels models, int count, double seconds) {
    List<CapturedPipeline> silent = models.withoutReduces(count);
    double alone = seconds(Mono.when(silent.stream().map(CapturedPipeline::run).toList()));
    silent.forEach(CapturedPipeline::close);
    return String.format(
        ", communication %.3f ms (%.0f%%)", (seconds - alone) * 1e3, 100 * (1 - alone / seconds));
  }

  /** The bytes of weights that a step reads. */
  private double weightBytes() {
    double heads = (double) config.headDim() * (2 * config.heads() + 2 * config.kvHeads());
    double layer = config.hidden() * (heads + 3.0 * config.intermediate());
    return 2 * (config.layers() * layer + (double) config.vocabulary() * config.hidden());
  }
}
