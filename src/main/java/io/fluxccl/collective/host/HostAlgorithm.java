package io.fluxccl.collective.host;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;

/** One way to do every collective, on strands that all ways share. */
final class HostAlgorithm implements CollectiveAlgorithm {
  /** Up to so many bytes everybody gets all inputs. */
  static final long ONE_SHOT_LIMIT = 8 << 10;

  private final HostCall.Way way;
  private final Communicator communicator;
  private final Strand[] strands;
  private final HostKernel kernel;

  HostAlgorithm(HostCall.Way way, Communicator communicator, Strand[] strands) {
    this.way = way;
    this.communicator = communicator;
    this.strands = strands;
    this.kernel = HostKernel.of(name(), this::run);
  }

  @Override
  public String name() {
    return switch (way) {
      case ONE_SHOT -> "host-one-shot";
      case STAGED -> "host-staged";
      case DIRECT -> "host-direct";
    };
  }

  @Override
  public boolean supports(BoundCall call) {
    return true;
  }

  /** Of calls of which ranks don't know the size, each pair looks at what goes between them. */
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
    int threads = Strand.strandsFor(largestMessage(call), strands.length);
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
    // After a failure nothing is certain any more, least of all the pipes.
    if (communicator.failure() == null) {
      try {
        strands[thread.threadIdx()].run(thread, args.get(0, HostCall.class));
      } catch (FluxCclException e) {
        // At once: the launch fails when all strands are done, and others wait for peers.
        communicator.abort(e);
        throw e;
      }
    }
  }
}
