// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.Map;

/**
 * An all-reduce whose inputs and sums travel as codes of 8 bits: {@code reduce_quantized.cuh}. All
 * ranks get the same bits. docs/reference/algorithms.md states the error.
 */
final class QuantizedAllReduce implements CollectiveAlgorithm {
  /** The elements of a row of packets. */
  private static final int ROW_ELEMENTS = 448;

  private static final int WARPS = 16;
  private static final int WARP_SIZE = 32;
  private static final double MICROS_PER_KIB = 0.002;

  private final QuantizedSet set;
  private final String name;
  private final Map<DataType, CudaKernel> kernels;
  private final Reduction reduction;

  QuantizedAllReduce(QuantizedSet set, String code, Map<DataType, CudaKernel> kernels) {
    this.set = set;
    this.name = "quantized-" + code;
    this.kernels = kernels;
    this.reduction = new Reduction(set.area);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public boolean isExact() {
    return false;
  }

  @Override
  public boolean needsNvlink() {
    return true;
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call().collective() == Collective.ALL_REDUCE
        && call.call().op() == ReduceOp.SUM
        && kernels.containsKey(call.call().type());
  }

  @Override
  public double estimate(BoundCall call) {
    return 3 + MICROS_PER_KIB * ReduceAlgorithm.sent(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    long elements = Reduction.partBytes(call) / call.call().type().size();
    long rows = (elements + ROW_ELEMENTS - 1) / ROW_ELEMENTS;
    int blocks = set.grid.blocksFor(Math.min(rows, set.area.kind().rows(set.area.slotBytes())), 1);
    int warps = (int) Math.max(1, Math.min(WARPS, (rows + blocks - 1) / blocks));
    CudaKernel kernel = kernels.get(call.call().type());
    stream.launch(
        set.grid.forBlocks(kernel, blocks),
        blocks,
        warps * WARP_SIZE,
        KernelArgs.of(set.peers.bind(call), reduction.bind(call)));
  }
}
