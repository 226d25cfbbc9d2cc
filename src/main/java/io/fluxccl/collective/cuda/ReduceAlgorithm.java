// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.Map;

/**
 * The base of the reductions of {@link ReduceSet}: a kernel for each type, and its arguments.
 *
 * <p>Estimates are latency plus bytes by rate, in microseconds. They are fitted to measurements on
 * two H200, which have kernels of their own, and on eight, in graphs; those of large calls on two
 * and on four. The selector needs the sizes where the curves of two algorithms cross.
 */
abstract class ReduceAlgorithm implements CollectiveAlgorithm {
  static final int WARP_SIZE = 32;
  static final double KIB = 1024;

  final ReduceSet set;
  private final String name;
  private final Map<DataType, CudaKernel> kernels;
  final Reduction reduction;

  ReduceAlgorithm(ReduceSet set, String name, Map<DataType, CudaKernel> kernels, PacketArea area) {
    this.set = set;
    this.name = name;
    this.kernels = kernels;
    this.reduction = new Reduction(area);
  }

  @Override
  public final String name() {
    return name;
  }

  @Override
  public final ReductionOrder order(BoundCall call) {
    return ReductionOrder.OF_RANKS;
  }

  /** Returns the KiB that a rank sends: its input, and as much again to distribute results. */
  static double sent(BoundCall call) {
    double part = call.totalBytes() / KIB / call.nRanks() * (call.nRanks() - 1);
    return isScatter(call) ? part : 2 * part;
  }

  static boolean isScatter(BoundCall call) {
    return call.call().collective() == Collective.REDUCE_SCATTER;
  }

  static boolean isScatterOfPair(BoundCall call) {
    return call.nRanks() == 2 && isScatter(call);
  }

  /** Returns whether there is a kernel for the call's type. */
  final boolean hasKernel(BoundCall call) {
    return kernels.containsKey(call.call().type());
  }

  /** Returns whether ranks can store a call's results into each other's outputs. */
  static boolean canStoreResults(BoundCall call) {
    return call.call().collective() == Collective.ALL_REDUCE && call.isOutputRegistered()
        || call.call().collective() == Collective.REDUCE_SCATTER;
  }

  final CudaKernel kernel(BoundCall call) {
    return kernels.get(call.call().type());
  }

  /** Launches the kernel that uses nothing but the family's state. */
  final void launch(DeviceStream stream, BoundCall call, int blocks, int threads) {
    stream.launch(
        set.grid.forBlocks(kernel(call), blocks),
        blocks,
        threads,
        KernelArgs.of(set.peers.bind(call), reduction.bind(call)));
  }

  /** Launches the kernel with blocks of most threads and scratch. */
  final void launch(DeviceStream stream, BoundCall call, int blocks, Scratch.Handle scratch) {
    stream.launch(
        kernel(call),
        blocks,
        GpuGrid.MAX_THREADS,
        KernelArgs.of(set.peers.bind(call), reduction.bind(call), scratch));
  }
}
