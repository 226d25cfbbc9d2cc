// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;

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
}
