// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.collective.Registration;
import io.fluxccl.collective.host.SegmentCache.SegmentReference;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.device.host.SharedSegment;
import java.util.Locale;

/** Every collective, done in one {@link TransferMode} by workers that all ways share. */
final class HostAlgorithm implements CollectiveAlgorithm {
  /** The most bytes of a call in which every rank receives all inputs. */
  static final long ONE_SHOT_LIMIT = 8 << 10;

  private final String name;
  private final TransferMode way;
  private final Communicator communicator;
  private final Worker[] workers;
  private final HostKernel kernel;

  HostAlgorithm(TransferMode way, Communicator communicator, Worker[] workers) {
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

  /**
   * The kernel's argument: a call with its addresses. Immutable, so that a recording may run it
   * again and again.
   *
   * @param bound the call and its registrations
   * @param way how large calls move data
   * @param input address of this rank's input; 0 if there is none
   * @param output address of this rank's output; 0 if there is none
   * @param inputSegment segment of the input if it is not registered and peers may map it, or null
   * @param outputSegment segment of the output, likewise
   */
  record HostCall(
      BoundCall bound,
      TransferMode way,
      long input,
      long output,
      SharedSegment inputSegment,
      SharedSegment outputSegment) {
    static HostCall of(BoundCall bound, TransferMode way) {
      CollectiveCall call = bound.call();
      return new HostCall(
          bound,
          way,
          call.inputAddress(),
          call.outputAddress(),
          bound.inputRegistration() == null ? segment(call.input()) : null,
          bound.outputRegistration() == null ? segment(call.output()) : null);
    }

    CollectiveCall call() {
      return bound.call();
    }

    private static SharedSegment segment(DeviceBuffer buffer) {
      SharedSegment segment = buffer instanceof HostBuffer host ? host.segment() : null;
      return segment != null && segment.isOwned() ? segment : null;
    }

    /**
     * Returns an address in a peer's registered buffer.
     *
     * @param id of the registration, which this rank's input or output lies in
     * @param offset in the buffer, sent by the peer
     * @param bytes that this rank accesses from there on
     * @throws TransportFailure if they lie outside of the buffer
     */
    long registered(int peer, int id, long offset, long bytes) {
      Registration input = bound.inputRegistration();
      Registration of = input != null && input.id() == id ? input : bound.outputRegistration();
      if (of == null || of.id() != id || offset < 0 || offset > of.buffer().size() - bytes) {
        throw TransportFailure.of(
            peer,
            "%s: rank %d names offset=%d of registration %d for %d bytes: out of bounds",
            call(),
            peer,
            offset,
            id,
            bytes);
      }
      return of.addressOn(peer) + offset;
    }

    /** Returns whether received data overwrites data that is still to be sent. */
    boolean swaps() {
      return call().collective() == Collective.ALL_TO_ALL && input == output;
    }

    /**
     * Describes this rank's buffers to a peer: registered ones by id, others by reference once they
     * were used before.
     *
     * @param inputAt offset in the input where the peer may read
     * @param outputAt offset in the output where the peer may write
     * @param cache remembers the segments that were used before
     * @param target receives the description
     */
    void describe(long inputAt, long outputAt, SegmentCache cache, BufferDescriptor target) {
      target.inputId = id(bound.inputRegistration());
      target.outputId = id(bound.outputRegistration());
      target.inputOffset = offset(bound.inputRegistration(), input + inputAt);
      target.outputOffset = offset(bound.outputRegistration(), output + outputAt);
      target.flags = swaps() ? BufferDescriptor.IN_PLACE : 0;
      refer(inputSegment, input + inputAt, cache, target.input);
      refer(outputSegment, output + outputAt, cache, target.output);
    }

    private static int id(Registration registration) {
      return registration == null ? BufferDescriptor.NONE : registration.id();
    }

    private static long offset(Registration registration, long address) {
      return registration == null ? 0 : address - registration.buffer().address();
    }

    private void refer(
        SharedSegment segment, long at, SegmentCache cache, SegmentReference target) {
      target.clear();
      if (!swaps() && segment != null && cache.isReused(segment.name())) {
        target.set(segment.name(), at - segment.address());
      }
    }
  }

  /** How large calls move data. */
  enum TransferMode {
    /** Each input through pipes to all ranks that need it. */
    ONE_SHOT,
    /** Through pipes, reductions in two phases. */
    STAGED,
    /** Between the ranks' buffers where peers can map them, through pipes elsewhere. */
    DIRECT
  }
}
