// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * One end of a connection. Set-up only checks that the two ends match and that this rank's device
 * can access the peer's device.
 */
final class MappedEndpoint implements Endpoint {
  private enum State {
    NEW,
    CONNECTED,
    CLOSED
  }

  private final MappedContext context;
  private final int remoteRank;
  private final int tag;
  private final AtomicReference<State> state = new AtomicReference<>(State.NEW);

  /**
   * The description of one end, as the other end reads it:
   *
   * <pre>
   *   header "FXME" version 1   uint16 ordinal of the transport
   *   int32 rank   int32 tag   int64 host hash   int64 process hash   string location of the device
   * </pre>
   */
  record End(
      Transport transport, int rank, int tag, long hostHash, long processHash, String location) {
    private static final int MAGIC = 0x454d5846;
    private static final int MAX_LOCATION_LENGTH = 64;

    byte[] encode() {
      return new WireWriter()
          .header(MAGIC, 1)
          .uint16(transport.ordinal())
          .int32(rank)
          .int32(tag)
          .int64(hostHash)
          .int64(processHash)
          .string(location)
          .toBytes();
    }

    /**
     * Decodes the description that a peer sent, and validates every field.
     *
     * @throws TransportFailure if it is malformed, or describes another transport or rank
     */
    static End decode(Transport transport, byte[] wire, int fromRank) {
      WireReader in = WireReader.ofPeer(wire, transport + " endpoint", fromRank);
      in.header(MAGIC, 1);
      int ordinal = in.uint16("transport");
      in.check(
          ordinal == transport.ordinal(),
          "transport",
          ordinal + ", expected " + transport.ordinal());
      int rank = in.int32("rank");
      in.check(rank == fromRank, "rank", rank + ", expected " + fromRank);
      End end =
          new End(
              transport,
              rank,
              in.int32("tag"),
              in.int64("host hash"),
              in.int64("process hash"),
              in.string("location", MAX_LOCATION_LENGTH));
      in.end();
      return end;
    }
  }

  MappedEndpoint(MappedContext context, int remoteRank, int tag) {
    this.context = context;
    this.remoteRank = remoteRank;
    this.tag = tag;
  }

  @Override
  public byte[] wire() {
    TransportEnvironment own = context.environment();
    return new End(
            context.transport(),
            own.rank(),
            tag,
            own.hostHash(),
            own.processHash(),
            context.location())
        .encode();
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    try {
      return CompletableFuture.completedFuture(connect(remoteWire));
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  /**
   * {@inheritDoc}
   *
   * <p>Ranks of the host device need no connect: the memories that they exchange show whether they
   * share a host.
   */
  @Override
  public Optional<Connection> onDemand(Runnable demand) {
    return context.transport() == Transport.SHM
        ? Optional.of(context.connect(remoteRank, tag))
        : Optional.empty();
  }

  private Connection connect(byte[] remoteWire) {
    End remote = End.decode(context.transport(), remoteWire, remoteRank);
    if (remote.tag() != tag) {
      throw TransportFailure.of(
          remoteRank,
          "rank %s connects with tag=%s, rank %s with tag=%s",
          remoteRank,
          remote.tag(),
          context.environment().rank(),
          tag);
    }
    context.checkSameHost(remoteRank, remote.hostHash());
    context.checkReachable(remoteRank, remote.location());
    if (!state.compareAndSet(State.NEW, State.CONNECTED)) {
      throw state.get() == State.CLOSED
          ? Aborted.of(remoteRank, "the endpoint to rank %s tag=%s was closed", remoteRank, tag)
          : InvalidUsage.of("the endpoint to rank %s is connected already", remoteRank);
    }
    return context.connect(remoteRank, tag);
  }

  @Override
  public void close() {
    state.compareAndSet(State.NEW, State.CLOSED);
  }
}
