package io.fluxccl.transport.shm;

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

/** One end of a connection; there is nothing to set up but to see that the ends fit. */
final class ShmEndpoint implements Endpoint {
  private enum State {
    NEW,
    CONNECTED,
    CLOSED
  }

  private final ShmContext context;
  private final int remoteRank;
  private final int tag;
  private final AtomicReference<State> state = new AtomicReference<>(State.NEW);

  ShmEndpoint(ShmContext context, int remoteRank, int tag) {
    this.context = context;
    this.remoteRank = remoteRank;
    this.tag = tag;
  }

  @Override
  public byte[] wire() {
    TransportEnvironment own = context.environment();
    return ShmEndpointCodec.encode(
        new ShmEndpointCodec.End(own.rank(), tag, own.hostHash(), own.processHash()));
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
    ShmEndpointCodec.End remote = ShmEndpointCodec.decode(remoteWire, remoteRank);
    if (remote.tag() != tag) {
      throw new TransportFailure(
          remoteRank,
          "rank " + remoteRank + " connects with tag=" + remote.tag() + ", we with tag=" + tag);
    }
    context.refuseOtherHost(remoteRank, remote.hostHash());
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
