// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedSizes;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.group.RankGroup;
import java.util.ArrayList;
import java.util.List;
import reactor.core.publisher.Mono;

/**
 * One rank's part of a model that computes the next token from the last one. Of each layer a rank
 * has some of the hidden units: their columns of the first matrix and their rows of the second. The
 * sum over all ranks is the layer's output.
 */
final class Mlp implements AutoCloseable {
  static final int TOKENS = 64;
  static final int MAX_BATCH = 8;
  private static final int HIDDEN = 96;

  private final List<FloatView> views = new ArrayList<>();
  private final FloatView x;
  private final CapturedSizes steps;

  Mlp(RankGroup group) {
    int hidden = HIDDEN / group.nRanks();
    x = allocate(group, MAX_BATCH);
    FloatView y = allocate(group, MAX_BATCH);
    for (int matrix = 0; matrix < 4; matrix++) {
      int count = hidden * TOKENS;
      allocate(group, hidden).put(values(matrix, group.rank() * count, count));
    }
    int[] sizes = {1, 2, 4, MAX_BATCH};
    steps = CapturedSizes.of(sizes, n -> layer(layer(group.pipeline(), n, x, y, 2), n, y, x, 4));
    steps.captureAll();
  }

  private FloatView allocate(RankGroup group, int rows) {
    views.add(group.device().allocateFloats(rows, TOKENS));
    return views.get(views.size() - 1);
  }

  /** Numbers between -1 and 1 that look random. */
  private static float[] values(int seed, int from, int count) {
    float[] values = new float[count];
    for (int i = 0; i < count; i++) {
      int mixed = (seed * 31 + from + i + 1) * 0x9e3779b1;
      values[i] = (((mixed ^ (mixed >>> 15)) * 0x85ebca6b) >> 8) / (float) (1 << 23);
    }
    return values;
  }

  private Pipeline layer(Pipeline before, int batch, FloatView in, FloatView out, int matrix) {
    KernelArgs args = KernelArgs.of(in, out, views.get(matrix), views.get(matrix + 1));
    return before
        .launch(HostKernel.of("layer", Mlp::multiply), batch, 1, args)
        .allReduce(out.slice(0, (long) batch * TOKENS), ReduceOp.SUM);
  }

  /** A request of the batch is a block. */
  private static void multiply(KernelThread thread, KernelArgs args) {
    int row = thread.blockIdx() * TOKENS;
    FloatView in = FloatView.of(args.get(0, DeviceBuffer.class)).slice(row, TOKENS);
    FloatView out = FloatView.of(args.get(1, DeviceBuffer.class)).slice(row, TOKENS);
    FloatView up = FloatView.of(args.get(2, DeviceBuffer.class));
    FloatView down = FloatView.of(args.get(3, DeviceBuffer.class));
    float[] sums = new float[TOKENS];
    for (long unit = 0; unit < up.size(); unit += TOKENS) {
      float active = 0;
      for (int i = 0; i < TOKENS; i++) {
        active += up.get(unit + i) * in.get(i);
      }
      for (int i = 0; i < TOKENS && active > 0; i++) {
        sums[i] += down.get(unit + i) * active / HIDDEN;
      }
    }
    out.put(sums);
  }

  /** Begins a step on this rank; each byte is the last token of a request. */
  Mono<Void> step(byte[] batch) {
    for (int row = 0; row < batch.length; row++) {
      x.slice(row * TOKENS, TOKENS).put(values(-1 - batch[row], 0, TOKENS));
    }
    return steps.atLeast(batch.length).run();
  }

  /** Returns the next token of a request after a step: the one with the largest output. */
  byte next(int row) {
    byte best = 0;
    for (byte token = 1; token < TOKENS; token++) {
      best = x.get(row, token) > x.get(row, best) ? token : best;
    }
    return best;
  }

  @Override
  public void close() {
    steps.close();
    views.forEach(view -> view.buffer().close());
  }
}
