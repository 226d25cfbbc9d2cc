package io.fluxccl.transport.cudaipc;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.TransportEnvironment;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/** One end of a connection; what there is to set up is that the two GPUs reach each other. */
final class CudaIpcEndpoint implements Endpoint {
  private enum State {
    NEW,
    CONNECTED,
    CLOSED
  }

  private final CudaIpcContext context;
  private final int remoteRank;
  private final int tag;
  private final AtomicReference<State> state = new AtomicReference<>(State.NEW);

  CudaIpcEndpoint(CudaIpcContext context, int remoteRank, int tag) {
    this.context = context;
    this.remoteRank = remoteRank;
    this.tag = tag;
  }

  @Override
  public byte[] wire() {
    TransportEnvironment own = context.environment();
    return CudaIpcEndpointCodec.encode(
        new CudaIpcEndpointCodec.End(
            own.rank(), tag, own.hostHash(), own.processHash(), context.device().pciBusId()));
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    try {
      return CompletableFuture.completedFuture(connect(remoteWire));
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private Connection connect(byte[] remoteWire) {
    CudaIpcEndpointCodec.End remote = CudaIpcEndpointCodec.decode(remoteWire, remoteRank);
    if (remote.tag() != tag) {
      throw new TransportFailure(
          remoteRank,
          "rank " + remoteRank + " connects with tag=" + remote.tag() + ", we with tag=" + tag);
    }
    context.refuseOtherHost(remoteRank, remote.hostHash());
    context.requireReachable(remoteRank, remote.pciBusId());
    if (!state.compareAndSet(State.NEW, State.CONNECTED)) {
      if (state.get() == State.CLOSED) {
        throw new Aborted(
            remoteRank, "the endpoint to rank " + remoteRank + " tag=" + tag + " was closed");
      }
      throw new InvalidUsage("the endpoint to rank " + remoteRank + " is connected already");
    }
    return context.connect(remoteRank, tag);
  }

  @Override
  public void close() {
    state.compareAndSet(State.NEW, State.CLOSED);
  }
}
