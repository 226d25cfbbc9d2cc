// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaKernel;
import org.agrona.BitUtil;

/** Tokens to the ranks of their experts: {@code dispatch.cuh}. */
final class ExpertDispatch implements CollectiveAlgorithm {
  private final RoutedSet set;
  private final CudaKernel kernel;
  private final ExpertTask task;

  ExpertDispatch(RoutedSet set) {
    this.set = set;
    this.kernel = set.kernel("dispatch");
    this.task = new ExpertTask(set, 2 * Long.BYTES + 2 * Integer.BYTES);
  }

  @Override
  public String name() {
    return "experts-dispatch";
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
    return call.call() instanceof Dispatch;
  }

  @Override
  public double estimate(BoundCall call) {
    return ExchangeAlgorithm.LL128_LATENCY;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall bound) {
    Dispatch call = (Dispatch) bound.call();
    ExpertShape shape = call.batch().shape();
    int scales = BitUtil.align(shape.scaleBytes(), Long.BYTES);
    int bytes = shape.tokenBytes() + scales + 2 * shape.topK() * Integer.BYTES;
    task.bind(call.batch(), shape.tokenBytes(), bytes)
        .putAddress(call.scales())
        .putAddress(call.outputScales())
        .putInt(shape.scaleBytes());
    set.launch(stream, bound, kernel, task, task.sliceRows(shape, bytes) * (bound.nRanks() - 1));
  }
}
