// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.DeviceAllToAllV;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaKernel;

/** An all-to-all-v with counts on the device: {@code routed_all_to_all.cuh}. */
final class RoutedAllToAll implements CollectiveAlgorithm {
  private static final int LENGTH = RouteArea.LENGTH + 7 * Long.BYTES + 2 * Integer.BYTES;

  private final RoutedSet set;
  private final CudaKernel kernel;

  // Filled in for each call, by the one thread that enqueues.
  private final KernelStruct task = new KernelStruct(LENGTH);

  RoutedAllToAll(RoutedSet set) {
    this.set = set;
    this.kernel = set.kernel("all_to_all");
  }

  @Override
  public String name() {
    return "routed-all-to-all";
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
    return call.call() instanceof DeviceAllToAllV;
  }

  @Override
  public double estimate(BoundCall call) {
    return ExchangeAlgorithm.LL128_LATENCY;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall bound) {
    DeviceAllToAllV call = (DeviceAllToAllV) bound.call();
    int size = call.type().size();
    long rows = PacketArea.Kind.LL128.rows(call.countBytes());
    int sliceRows = (int) Math.min(set.area.rows(), rows);
    set.area
        .writeTo(task, set.faultAddress())
        .putAddress(call.counts().send())
        .putAddress(call.counts().sendOffsets())
        .putAddress(call.counts().receiveOffsets())
        .putAddress(call.counts().received())
        .putLong(call.most())
        .putLong(call.inputBytes(bound.rank(), bound.nRanks()) / size)
        .putLong(call.outputBytes(bound.rank(), bound.nRanks()) / size)
        .putInt(size)
        .putInt(sliceRows);
    set.launch(stream, bound, kernel, task, (long) sliceRows * (bound.nRanks() - 1));
  }
}
