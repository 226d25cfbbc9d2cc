// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import java.util.Locale;

/** Every collective, done in one {@link HostCall.TransferMode} by workers that all ways share. */
final class HostAlgorithm implements CollectiveAlgorithm {
  /** The most bytes of a call in which every rank receives all inputs. */
  static final long ONE_SHOT_LIMIT = 8 << 10;

  private final String name;
  private final HostCall.TransferMode way;
  private final Communicator communicator;
  private final Worker[] workers;
  private final HostKernel kernel;

  HostAlgorithm(HostCall.TransferMode way, Communicator communicator, Worker[] workers) {
    this.way = way;
    this.communicator = communicator;
    this.workers = workers;
    this.name = "host-" + way.name().toLowerCase(Locale.ROOT).replace('_', '-');
    this.kernel = HostKernel.of(name, this::run);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public boolean supports(BoundCall call) {
    return call.call().collective() != Collective.FUSED_ALL_REDUCE;
  }

  @Override
  public ReductionOrder order(BoundCall call) {
    return ReductionOrder.OF_RANKS;
  }

  /** {@inheritDoc} A call whose total size is unknown is direct: each pair knows its messages. */
  @Override
  public double estimate(BoundCall call) {
    boolean small =
        call.call().collective() == Collective.BARRIER
            || call.totalBytes() > 0 && call.totalBytes() <= ONE_SHOT_LIMIT;
    double time = 1 + call.totalBytes() / 10_000.0;
    return switch (way) {
      case ONE_SHOT -> small ? time : 10 * time;
      case STAGED -> 3 * time;
      case DIRECT -> 2 * time;
    };
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    int threads = Worker.workersFor(largestMessage(call), workers.length);
    stream.launch(
        kernel, 1, threads, KernelArgs.of(HostCall.of(call, way), communicator.abortFlag()));
  }

  private static long largestMessage(BoundCall bound) {
    CollectiveCall call = bound.call();
    long most = 0;
    for (int peer = 0; peer < bound.nRanks(); peer++) {
      most = Math.max(most, call.sendBytes(bound.rank(), peer));
      most = Math.max(most, call.receiveBytes(bound.rank(), peer));
    }
    return most;
  }

  private void run(KernelThread thread, KernelArgs args) {
    // After a failure the pipes may have any state, and their memory may be unmapped.
    if (communicator.failure() == null) {
      try {
        workers[thread.threadIdx()].run(thread, args.get(0, HostCall.class));
      } catch (FluxCclException e) {
        // Abort now: the launch fails only when all workers end, and others wait for peers.
        communicator.abort(e);
        throw e;
      }
    }
  }
}
