// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.DeviceAllToAllV;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;

/** Calls whose sizes are read from memory when they run, by one thread of each rank. */
final class HostRouted implements CollectiveAlgorithm, AutoCloseable {
  private final Communicator communicator;
  private final PeerStreams streams;
  private final HostCountedExchange counted;
  private final HostDispatch dispatch;
  private final HostCombine combine;
  private final HostKernel kernel = HostKernel.of(name(), this::run);

  /**
   * Creates the algorithm.
   *
   * @param pipes to all peers, by rank; of a thread that runs no other call at the same time
   */
  HostRouted(Communicator communicator, int rank, MappedPipe[] pipes) {
    this.communicator = communicator;
    this.streams = new PeerStreams(rank, pipes);
    this.counted = new HostCountedExchange(rank, pipes.length, streams, communicator.device());
    this.dispatch = new HostDispatch(rank, pipes.length, streams, communicator.device());
    this.combine = new HostCombine(rank, pipes.length, streams, communicator.device());
  }

  @Override
  public String name() {
    return "host-routed";
  }

  @Override
  public boolean isRouted() {
    return true;
  }

  @Override
  public boolean supports(BoundCall call) {
    return true;
  }

  @Override
  public double estimate(BoundCall call) {
    return 1;
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    stream.launch(kernel, 1, 1, KernelArgs.of(call, communicator.abortFlag()));
  }

  private void run(KernelThread thread, KernelArgs args) {
    // After a failure the pipes may have any state, and their memory may be unmapped.
    if (communicator.failure() == null) {
      try {
        run(args.get(0, BoundCall.class), thread.abortAddress());
      } catch (FluxCclException e) {
        communicator.abort(e);
        throw e;
      }
    }
  }

  private void run(BoundCall bound, long abort) {
    CollectiveCall call = bound.call();
    streams.begin(bound.signature());
    if (call instanceof Dispatch of) {
      dispatch.run(of, abort);
    } else if (call instanceof Combine of) {
      combine.run(of, abort);
    } else {
      counted.run((DeviceAllToAllV) call, abort);
    }
  }

  @Override
  public void close() {
    counted.close();
    dispatch.close();
    combine.close();
  }

  /** Memory that grows to what a call needs, and is kept for the calls after it. */
  static final class HostScratch implements AutoCloseable {
    private final Device device;
    private DeviceBuffer memory;

    HostScratch(Device device) {
      this.device = device;
    }

    /** Returns the address of at least {@code bytes} bytes with undefined content. */
    long reserve(long bytes) {
      if (memory == null || memory.size() < bytes) {
        close();
        memory = device.allocate(bytes);
      }
      return memory.address();
    }

    @Override
    public void close() {
      if (memory != null) {
        memory.close();
        memory = null;
      }
    }
  }
}
