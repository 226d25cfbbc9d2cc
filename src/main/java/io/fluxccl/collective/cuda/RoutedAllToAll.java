package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.DeviceAllToAllV;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.DeviceBuffer;
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
    long rows = (call.countBytes() + RouteArea.ROW_PAYLOAD - 1) / RouteArea.ROW_PAYLOAD;
    int sliceRows = (int) Math.min(set.area.rows(), rows);
    set.area
        .writeTo(task, set.faultAddress())
        .putLong(call.counts().send().address())
        .putLong(addressOf(call.counts().sendOffsets()))
        .putLong(addressOf(call.counts().receiveOffsets()))
        .putLong(call.counts().received().address())
        .putLong(call.most())
        .putLong(call.inputBytes(bound.rank(), bound.nRanks()) / size)
        .putLong(call.outputBytes(bound.rank(), bound.nRanks()) / size)
        .putInt(size)
        .putInt(sliceRows);
    set.launch(stream, bound, kernel, task, (long) sliceRows * (bound.nRanks() - 1));
  }

  private static long addressOf(DeviceBuffer buffer) {
    return buffer == null ? 0 : buffer.address();
  }
}
