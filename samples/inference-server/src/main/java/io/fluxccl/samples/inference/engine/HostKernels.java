// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.samples.inference.model.LlamaConfig;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/**
 * Kernels in Java for the host device. Each runs on the one thread of the rank's stream. Weights
 * are floats, transposed.
 */
final class HostKernels implements Kernels {
  private static final int MOST_WEIGHTS = Integer.MAX_VALUE - 8;

  private final LlamaConfig config;
  private final PinnedBuffer step;
  private final HostAttention attention;
  private final HostSampling sampling;
  private final float[] in;
  private final float[] out;

  /** The sums of products: an array for each row. */
  private final float[][] sums;

  /** Creates the kernels of one rank of {@code nRanks}, which read {@code step}'s StepRows. */
  HostKernels(LlamaConfig config, ModelOptions options, int rank, int nRanks, PinnedBuffer step) {
    this.config = config;
    this.step = step;
    int maxRows = options.maxRows();
    LlamaConfig.Heads heads = config.headsOf(rank, nRanks);
    this.attention = new HostAttention(config, options, heads, step);
    this.sampling = new HostSampling(config.vocabulary() / nRanks, rank, maxRows, step);
    int width = Math.max(2 * config.intermediate(), config.vocabulary()) / nRanks;
    width = Math.max(width, Math.max(config.hidden(), heads.ofAll() * config.headDim()));
    this.in = new float[maxRows * width];
    this.out = new float[maxRows * width];
    this.sums = new float[maxRows][width];
  }

  /** Weights to be read: {@code columns[input * outputs + output]}. */
  private record HostWeights(float[] columns, int outputs, int inputs) implements Weights {}

  /** Returns the numbers of one row or column; null if there are no weights. */
  private static float[] vector(Weights weights) {
    return weights == null ? null : ((HostWeights) weights).columns;
  }

  @Override
  public DataType type() {
    return DataType.FLOAT32;
  }

  @Override
  public Weights load(Use use, HostMatrix... stacked) {
    if (use != Use.READ) {
      return new HostProduct(stacked);
    }
    int inputs = stacked[0].cols();
    int outputs = Arrays.stream(stacked).mapToInt(HostMatrix::rows).sum();
    if ((long) outputs * inputs > MOST_WEIGHTS) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "a matrix of %d x %d weights; on the host one has at most %d, use GPUs or more ranks",
              outputs,
              inputs,
              MOST_WEIGHTS));
    }
    float[] columns = new float[outputs * inputs];
    int output = 0;
    for (HostMatrix tensor : stacked) {
      for (int row = 0; row < tensor.rows(); row++, output++) {
        for (int col = 0; col < inputs; col++) {
          columns[col * outputs + output] = tensor.get(row, col);
        }
      }
    }
    return new HostWeights(columns, outputs, inputs);
  }

  static FloatBuffer floats(DeviceBuffer buffer) {
    return buffer.asByteBuffer().orElseThrow().asFloatBuffer();
  }

  /** Adds a kernel that is called with the number of rows that the step really has. */
  private Pipeline launch(Pipeline before, String name, IntConsumer body) {
    HostKernel kernel =
        HostKernel.of(name, (thread, args) -> body.accept(StepRows.rows(step.buffer())));
    return before.launch(kernel, 1, 1, KernelArgs.NONE);
  }

  /** Adds a kernel that is called for each row that gets a next token. */
  private Pipeline launchForChosen(Pipeline before, String name, IntConsumer body) {
    HostKernel kernel =
        HostKernel.of(
            name,
            (thread, args) -> {
              int chosen = StepRows.chosen(step.buffer());
              for (int row = 0; row < chosen; row++) {
                atRow(row, body);
              }
            });
    return before.launch(kernel, 1, 1, KernelArgs.NONE);
  }

  /** A failure names the row, so that only its request ends. */
  private void atRow(int row, IntConsumer body) {
    try {
      body.accept(row);
    } catch (RuntimeException e) {
      throw new RowFailure(row(row), e);
    }
  }

  private StepRows.Row row(int row) {
    return StepRows.row(step.buffer(), row);
  }

  @Override
  public Pipeline embed(Pipeline before, int rows, Weights table, DeviceBuffer to) {
    HostWeights weights = (HostWeights) table;
    FloatBuffer target = floats(to);
    int width = config.hidden();
    IntConsumer embed =
        row -> {
          int token = Objects.checkIndex(row(row).token(), weights.outputs);
          for (int i = 0; i < width; i++) {
            target.put(row * width + i, weights.columns[i * weights.outputs + token]);
          }
        };
    return launch(
        before, "embed", count -> IntStream.range(0, count).forEach(row -> atRow(row, embed)));
  }

  @Override
  public Pipeline addNorm(
      Pipeline before, int rows, DeviceBuffer x, Delta delta, Weights gain, DeviceBuffer to) {
    float[] gains = vector(gain);
    float[] bias = delta == null ? null : vector(delta.bias());
    FloatBuffer residual = floats(x);
    FloatBuffer target = floats(to);
    return launch(
        before,
        "add-norm",
        count -> {
          int size = count * config.hidden();
          residual.get(0, in, 0, size);
          if (delta != null) {
            floats(delta.product()).get(0, out, 0, size);
            for (int i = 0; i < size; i++) {
              in[i] += out[i];
            }
            add(bias, config.hidden(), count);
            residual.put(0, in, 0, size);
          }
          normalise(count, gains, target);
        });
  }

  /** Adds a vector, if there is one, to each row of {@link #in}. */
  private void add(float[] bias, int width, int count) {
    if (bias != null) {
      for (int i = 0; i < count * width; i++) {
        in[i] += bias[i % width];
      }
    }
  }

  private void normalise(int count, float[] gains, FloatBuffer target) {
    int width = config.hidden();
    for (int from = 0; from < count * width; from += width) {
      float squares = 0;
      for (int i = 0; i < width; i++) {
        squares += in[from + i] * in[from + i];
      }
      float scale = (float) (1 / Math.sqrt(squares / width + config.epsilon()));
      for (int i = 0; i < width; i++) {
        out[from + i] = in[from + i] * scale * gains[i];
      }
    }
    target.put(0, out, 0, count * width);
  }

  @Override
  public Pipeline multiply(
      Pipeline before, int rows, DeviceBuffer from, Weights weights, DeviceBuffer to) {
    HostProduct product = (HostProduct) weights;
    FloatBuffer source = floats(from);
    FloatBuffer target = floats(to);
    return launch(
        before,
        "multiply",
        all -> {
          int count = Math.min(all, rows);
          source.get(0, in, 0, count * product.inputs());
          product.multiply(count, in, sums);
          for (int row = 0; row < count; row++) {
            target.put(row * product.outputs(), sums[row], 0, product.outputs());
          }
        });
  }

  @Override
  public Pipeline attend(
      Pipeline before, int rows, int layer, HeadWeights own, DeviceBuffer qkv, DeviceBuffer to) {
    FloatBuffer source = floats(qkv);
    FloatBuffer target = floats(to);
    float[] bias = vector(own.bias());
    HostAttention.Layer ofLayer =
        new HostAttention.Layer(
            layer, vector(own.queryGain()), vector(own.keyGain()), own.window());
    return launch(
        before,
        "attend",
        count -> {
          source.get(0, in, 0, count * attention.inputWidth());
          add(bias, attention.inputWidth(), count);
          attention.attend(ofLayer, count, in, out);
          target.put(0, out, 0, count * attention.outputWidth());
        });
  }

  @Override
  public Pipeline multiplyGated(
      Pipeline before,
      int rows,
      DeviceBuffer from,
      Weights weights,
      Weights bias,
      DeviceBuffer gateAndUp,
      DeviceBuffer to) {
    FloatBuffer source = floats(gateAndUp);
    FloatBuffer target = floats(to);
    float[] biases = vector(bias);
    int width = ((HostProduct) weights).outputs() / 2;
    return launch(
        multiply(before, rows, from, weights, gateAndUp),
        "gate",
        count -> {
          source.get(0, in, 0, count * 2 * width);
          add(biases, 2 * width, count);
          for (int row = 0; row < count; row++) {
            int gate = row * 2 * width;
            for (int i = 0; i < width; i++) {
              float x = in[gate + i];
              out[row * width + i] = (float) (x / (1 + Math.exp(-x))) * in[gate + width + i];
            }
          }
          target.put(0, out, 0, count * width);
        });
  }

  @Override
  public Pipeline most(Pipeline before, int rows, Choice choice) {
    return launchForChosen(before, "most", sampling.most(choice));
  }

  @Override
  public Pipeline masses(Pipeline before, int rows, int level, Choice choice) {
    return launchForChosen(before, "masses", sampling.masses(level, choice));
  }

  @Override
  public Pipeline limit(Pipeline before, int rows, int level, Choice choice) {
    return launchForChosen(before, "limit", sampling.limit(level, choice));
  }

  @Override
  public Pipeline best(Pipeline before, int rows, boolean nucleus, Choice choice) {
    return launchForChosen(before, "best", sampling.best(nucleus, choice));
  }

  @Override
  public Pipeline choose(Pipeline before, int rows, Choice choice) {
    return launchForChosen(before, "choose", sampling.choose(choice));
  }

  @Override
  public void close() {}
}
