// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.AddRmsNorm.WithRowScales;
import io.fluxccl.collective.AddRmsNorm.WithScale;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import java.util.Arrays;

/**
 * Runs any fused all-reduce, of any size, between any ranks: the all-reduce in place, by the
 * algorithm that is chosen for it, and then a kernel with the epilogue.
 */
final class SeparateEpilogue implements CollectiveAlgorithm {
  static final String NAME = "all-reduce-then-epilogue";

  private static final double LAUNCH = 2;

  /** Bytes that a GPU's memory moves in a microsecond, read or written. */
  private static final double MEMORY_RATE = 2.5e6;

  /** Rows are read twice and written twice. */
  private static final int PASSES = 4;

  private final AlgorithmSelector selector;
  private final RankTopology topology;
  private final HostKernel onHost;
  private final Scratch[] scratch;

  /** The scratch objects of one thread of the host device. */
  private static final class Scratch {
    final FloatRow row = new FloatRow();
    final HostNorm norm = new HostNorm();
  }

  /**
   * Creates the algorithm of a lane.
   *
   * @param selector chooses the all-reduce
   * @param threads of a kernel on the host device
   */
  SeparateEpilogue(AlgorithmSelector selector, RankTopology topology, int threads) {
    this.selector = selector;
    this.topology = topology;
    this.onHost = HostKernel.of("epilogue", this::runOnHost);
    this.scratch = new Scratch[Math.max(1, threads)];
    for (int i = 0; i < scratch.length; i++) {
      scratch[i] = new Scratch();
    }
  }

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call() instanceof FusedAllReduce;
  }

  /** {@inheritDoc} The selector chooses the all-reduce so that it keeps the promise. */
  @Override
  public ReductionOrder order(BoundCall call) {
    return ReductionOrder.OF_RANKS;
  }

  @Override
  public double estimate(BoundCall call) {
    FusedAllReduce fused = (FusedAllReduce) call.call();
    double local = LAUNCH + PASSES * fused.countBytes() / MEMORY_RATE;
    return selector.estimate(fused.allReduce()) + local;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    FusedAllReduce fused = (FusedAllReduce) call.call();
    if (topology.nRanks() > 1) {
      selector.enqueueChosen(fused.allReduce(), call.signature(), stream);
    }
    if (topology.kind() == DeviceKind.HOST) {
      stream.launch(onHost, 1, scratch.length, KernelArgs.of(fused));
      return;
    }
    int multiprocessors = topology.multiprocessors() / topology.ranksPerGpu();
    Epilogue.OnGpus epilogue = (Epilogue.OnGpus) fused.epilogue();
    epilogue.kernels().launchAlone(stream, fused, epilogue.argument(), multiprocessors);
  }

  /** Refuses an epilogue of another kind of device. */
  static void requireKind(FusedAllReduce call, RankTopology topology) {
    boolean isHost = topology.kind() == DeviceKind.HOST;
    if (call.epilogue() instanceof CustomEpilogue && isHost
        || call.epilogue() instanceof HostEpilogue && !isHost) {
      throw InvalidUsage.of(
          "%s on rank %d: the epilogue is for another kind of device; give a %s on %s",
          call,
          topology.rank(),
          isHost ? "HostEpilogue" : "CustomEpilogue",
          isHost ? "the host device" : "GPUs");
    }
  }

  private void runOnHost(KernelThread thread, KernelArgs args) {
    FusedAllReduce call = args.get(0, FusedAllReduce.class);
    Scratch mine = scratch[thread.threadIdx()];
    DeviceBuffer input = call.input();
    for (long row = thread.threadIdx(); row < call.rows(); row += thread.blockDim()) {
      mine.row.read(call.type(), input.address() + row * call.rowBytes(), (int) call.hidden());
      if (call.epilogue() instanceof AddRmsNorm norm) {
        mine.norm.finish(norm, call, row, mine.row);
      } else {
        ((HostEpilogue) call.epilogue()).function().accept(row, mine.row.values());
      }
    }
  }

  /**
   * {@link AddRmsNorm} on the host device. Adds in the order of {@code reduced_row.cuh}, and rounds
   * where it does; the reciprocal square root is more exact than a GPU's.
   */
  private static final class HostNorm {
    /** Words of a group. */
    private static final int GROUP = 32;

    private static final int GROUPS_AT_ONCE = 4;
    private static final int SETS = 8;
    private static final float LARGEST = 448;
    private static final float LEAST_SCALE = 1f / (512 * LARGEST);

    private final float[] words = new float[GROUP];
    private final float[] groups = new float[GROUPS_AT_ONCE];
    private final float[] totals = new float[SETS];

    /** Norms a row, which holds the sum over the ranks. */
    void finish(AddRmsNorm norm, FusedAllReduce call, long index, FloatRow row) {
      DataType type = call.type();
      int hidden = (int) call.hidden();
      long at = index * call.rowBytes();
      float[] values = row.values();
      long residual = norm.residual().address() + at;
      for (int i = 0; i < hidden; i++) {
        values[i] += FloatRow.get(type, residual, i);
      }
      row.round(type, hidden);
      if (norm.residualOut() != null) {
        row.write(type, norm.residualOut().address() + at, hidden);
      }
      float mean = sumOfSquares(values, hidden, FusedAllReduce.WORD / type.size()) * (1f / hidden);
      float scale = (float) (1 / Math.sqrt(mean + norm.epsilon()));
      long weight = norm.weight().address();
      for (int i = 0; i < hidden; i++) {
        values[i] = values[i] * scale * (FloatRow.get(type, weight, i) + norm.weightBias());
      }
      row.round(type, hidden);
      if (norm.normOut() != null) {
        row.write(type, norm.normOut().address() + at, hidden);
      }
      if (norm.quantization() instanceof WithScale fixed) {
        quantize(row, hidden, 1 / fixed.scale(), fixed.out().address() + index * hidden);
      } else if (norm.quantization() instanceof WithRowScales perRow) {
        float rowScale = Math.max(largest(values, hidden) * (1 / LARGEST), LEAST_SCALE);
        HostMemory.putFloat(perRow.scales().address() + index * Float.BYTES, rowScale);
        quantize(row, hidden, 1 / rowScale, perRow.out().address() + index * hidden);
      }
    }

    private static void quantize(FloatRow row, int count, float inverse, long to) {
      for (int i = 0; i < count; i++) {
        row.values()[i] *= inverse;
      }
      row.write(DataType.FLOAT8_E4M3, to, count);
    }

    private static float largest(float[] values, int count) {
      float largest = 0;
      for (int i = 0; i < count; i++) {
        float magnitude = Math.abs(values[i]);
        largest = magnitude > largest ? magnitude : largest; // leaves out what is no number
      }
      return largest;
    }

    /**
     * Adds up words, then groups of words as a warp does, then four groups at a time, then every
     * eighth of these.
     */
    private float sumOfSquares(float[] values, int count, int elements) {
      Arrays.fill(totals, 0);
      int ofFour = GROUPS_AT_ONCE * GROUP * elements;
      for (int first = 0; first * ofFour < count; first++) {
        for (int group = 0; group < GROUPS_AT_ONCE; group++) {
          int from = first * ofFour + group * GROUP * elements;
          groups[group] = sumOfGroup(values, from, count, elements);
        }
        totals[first % SETS] += groups[0] + groups[1] + (groups[2] + groups[3]);
      }
      return halve(totals);
    }

    private float sumOfGroup(float[] values, int begin, int count, int elements) {
      for (int word = 0; word < GROUP; word++) {
        int from = begin + word * elements;
        float sum = 0;
        for (int i = from; i < Math.min(count, from + elements); i++) {
          sum += values[i] * values[i];
        }
        words[word] = sum;
      }
      return halve(words);
    }

    /** Adds the second half to the first until one sum is left. */
    private static float halve(float[] sums) {
      for (int distance = sums.length / 2; distance > 0; distance /= 2) {
        for (int i = 0; i < distance; i++) {
          sums[i] += sums[i + distance];
        }
      }
      return sums[0];
    }
  }
}
