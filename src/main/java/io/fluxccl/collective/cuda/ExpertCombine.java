// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaKernel;

/** Returns the sums of the experts' results to the tokens' ranks: {@code combine.cuh}. */
final class ExpertCombine implements CollectiveAlgorithm {
  private final RoutedSet set;
  private final CudaKernel kernel;
  private final CudaKernel weighted;
  private final ExpertTask task;

  ExpertCombine(RoutedSet set) {
    this.set = set;
    this.kernel = set.kernel("combine");
    this.weighted = set.kernel("combine_weighted");
    this.task = new ExpertTask(set, Long.BYTES + 2 * Integer.BYTES);
  }

  @Override
  public String name() {
    return "experts-combine";
  }

  @Override
  public boolean isRouted() {
    return true;
  }

  @Override
  public boolean needsNvlink() {
    return true;
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call() instanceof Combine;
  }

  @Override
  public double estimate(BoundCall call) {
    return ExchangeAlgorithm.LL128_LATENCY;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall bound) {
    Combine call = (Combine) bound.call();
    ExpertShape shape = call.batch().shape();
    int bytes = shape.combinedBytes();
    task.bind(call.batch(), bytes, bytes).putAddress(call.rows()).putInt(call.inputRows());
    set.launch(
        stream, bound, call.rows() == null ? kernel : weighted, task, task.sliceRows(shape, bytes));
  }
}
