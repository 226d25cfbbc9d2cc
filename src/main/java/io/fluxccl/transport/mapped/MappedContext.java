// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;

/** A mapped-memory transport of one communicator. Owns its memories and connections. */
public abstract class MappedContext implements TransportContext {
  private final Transport transport;
  private final TransportEnvironment environment;
  private final Lifecycle lifecycle;

  /**
   * Creates an open context.
   *
   * @param transport SHM or CUDA_IPC
   * @param environment the communicator that opens it
   */
  protected MappedContext(Transport transport, TransportEnvironment environment) {
    this.transport = transport;
    this.environment = environment;
    this.lifecycle = new Lifecycle(Text.of("%s of rank %s", transport, environment.rank()));
  }

  @Override
  public final Transport transport() {
    return transport;
  }

  /** Returns the communicator that opened this context. */
  protected final TransportEnvironment environment() {
    return environment;
  }

  // Operations that each transport implements.

  /**
   * Registers memory of this rank. Throws {@code InvalidUsage} for memory that the transport can't
   * map.
   */
  protected abstract MappedMemory mapOwn(DeviceBuffer buffer);

  /**
   * Maps memory of a rank of this host.
   *
   * @param sameProcess whether the rank is in this process
   * @throws TransportFailure if the memory can't be mapped
   */
  protected abstract MappedMemory mapPeers(
      MappedMemoryDescriptor place, MemoryOrigin origin, boolean sameProcess);

  /**
   * Returns the location of this rank's device in the form that the peer's {@link #checkReachable}
   * expects.
   */
  protected String location() {
    return "";
  }

  /**
   * Checks that this rank's device can access the memory of a peer's device.
   *
   * @param location the peer's {@link #location()}, not yet checked
   * @throws TransportFailure if it can't
   */
  protected void checkReachable(int rank, String location) {}

  /** Creates a connection. */
  protected abstract MappedConnection newConnection(int remoteRank, int tag);

  /**
   * Returns the error for memory of a rank of this process that is closed.
   *
   * @param name the name of its segment or allocation
   */
  protected static TransportFailure closedByOwner(MemoryOrigin origin, Object name) {
    return TransportFailure.of(
        origin.rank(),
        "rank %s of this process has closed the memory it sent (%s);"
            + " keep it open until its peers have received it",
        origin.rank(),
        name);
  }

  // Operations that all have in common.

  @Override
  public final MemoryHandle register(DeviceBuffer buffer) {
    lifecycle.checkOpen();
    return lifecycle.own(mapOwn(buffer));
  }

  @Override
  public final MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    lifecycle.checkOpen();
    MappedMemoryDescriptor place = MappedMemoryDescriptor.decode(transport, wire, origin.rank());
    checkSameHost(origin.rank(), origin.hostHash());
    boolean sameProcess = origin.processHash() == environment.processHash();
    return lifecycle.own(mapPeers(place, origin, sameProcess));
  }

  @Override
  public final Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    lifecycle.checkOpen();
    environment.checkPeer(remoteRank);
    config.checkTransport(transport);
    return new MappedEndpoint(this, remoteRank, tag);
  }

  final void checkSameHost(int rank, long hostHash) {
    if (hostHash != environment.hostHash()) {
      throw TransportFailure.of(
          rank,
          "rank %s is on another host than rank %s, which %s can't reach; use ETHERNET",
          rank,
          environment.rank(),
          transport);
    }
  }

  final MappedConnection connect(int remoteRank, int tag) {
    return lifecycle.own(newConnection(remoteRank, tag));
  }

  /** Removes a connection that is closed. */
  final void remove(MappedConnection connection) {
    lifecycle.disown(connection);
  }

  /**
   * Unmaps a memory once the work enqueued on the device is done, because that work may use the
   * memory.
   */
  final void free(MappedMemory memory, Runnable unmap) {
    lifecycle.disown(memory);
    environment.device().whenEnqueuedWorkIsDone(unmap);
  }

  @Override
  public final void close() {
    lifecycle.close();
  }
}
