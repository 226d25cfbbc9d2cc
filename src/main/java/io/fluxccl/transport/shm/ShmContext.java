package io.fluxccl.transport.shm;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.SharedSegment;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Shared memory as one communicator uses it. */
final class ShmContext implements TransportContext {
  private final TransportEnvironment environment;
  private final HostDevice device;
  private final ShmMappings mappings = new ShmMappings();
  private final Set<ShmMemoryHandle> handles = ConcurrentHashMap.newKeySet();
  private final Set<ShmConnection> connections = ConcurrentHashMap.newKeySet();
  private volatile boolean closed;

  ShmContext(TransportEnvironment environment, HostDevice device) {
    this.environment = environment;
    this.device = device;
  }

  @Override
  public Transport transport() {
    return Transport.SHM;
  }

  TransportEnvironment environment() {
    return environment;
  }

  @Override
  public MemoryHandle register(DeviceBuffer buffer) {
    refuseWhenClosed();
    if (buffer.device() != device) {
      throw new InvalidUsage(
          "SHM of rank "
              + environment.rank()
              + " takes memory of "
              + device
              + "; this is memory of "
              + buffer.device());
    }
    HostBuffer memory = (HostBuffer) buffer;
    memory.retain();
    SharedSegment segment = memory.segment();
    byte[] wire =
        ShmMemoryCodec.encode(new ShmMemoryCodec.Place(segment.name(), memory.segmentOffset()));
    return keep(new ShmMemoryHandle(this, wire, memory.address(), memory.size(), segment::release));
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    refuseWhenClosed();
    ShmMemoryCodec.Place place = ShmMemoryCodec.decode(wire, origin.size(), origin.rank());
    refuseOtherHost(origin.rank(), origin.hostHash());
    boolean sameProcess = origin.processHash() == environment.processHash();
    SharedSegment segment = sameProcess ? owned(place, origin) : mapped(place, origin);
    Runnable release = sameProcess ? segment::release : () -> mappings.release(segment);
    return keep(
        new ShmMemoryHandle(
            this, wire.clone(), segment.address() + place.offset(), origin.size(), release));
  }

  /** Looked up rather than believed: an address that a peer sends is not followed. */
  private static SharedSegment owned(ShmMemoryCodec.Place place, MemoryOrigin origin) {
    return SharedSegment.retainOwned(place.segment())
        .orElseThrow(
            () ->
                new TransportFailure(
                    origin.rank(),
                    "rank "
                        + origin.rank()
                        + " of this process has closed the memory it sent ("
                        + place.segment()
                        + "); keep it open until its peers have received it"));
  }

  private SharedSegment mapped(ShmMemoryCodec.Place place, MemoryOrigin origin) {
    try {
      return mappings.acquire(place.segment());
    } catch (DeviceFailure e) {
      throw new TransportFailure(
          origin.rank(), "memory of rank " + origin.rank() + ": " + e.getMessage(), e);
    }
  }

  void refuseOtherHost(int rank, long hostHash) {
    if (hostHash != environment.hostHash()) {
      throw new TransportFailure(
          rank,
          "rank "
              + rank
              + " is on another host than rank "
              + environment.rank()
              + ", which SHM can't reach; use ETHERNET");
    }
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    refuseWhenClosed();
    if (remoteRank < 0 || remoteRank >= environment.nRanks()) {
      throw new InvalidUsage(
          "remoteRank=" + remoteRank + " is outside 0 to " + (environment.nRanks() - 1));
    }
    if (config.transport() != Transport.SHM) {
      throw new InvalidUsage("endpoint for " + config.transport() + " asked of SHM");
    }
    return new ShmEndpoint(this, remoteRank, tag);
  }

  ShmConnection connect(int remoteRank, int tag) {
    ShmConnection connection = new ShmConnection(this, remoteRank, tag);
    connections.add(connection);
    if (closed) {
      connection.close();
      refuseWhenClosed();
    }
    return connection;
  }

  void remove(ShmConnection connection) {
    connections.remove(connection);
  }

  private MemoryHandle keep(ShmMemoryHandle handle) {
    handles.add(handle);
    if (closed) {
      handle.close();
      refuseWhenClosed();
    }
    return handle;
  }

  /** Kernels that are enqueued may still use the memory by its address. */
  void letGo(ShmMemoryHandle handle, Runnable release) {
    handles.remove(handle);
    device.whenEnqueuedWorkIsDone(release);
  }

  int mappedSegments() {
    return mappings.count();
  }

  private void refuseWhenClosed() {
    if (closed) {
      throw new InvalidUsage("SHM of rank " + environment.rank() + " is closed");
    }
  }

  @Override
  public void close() {
    closed = true;
    connections.forEach(ShmConnection::close);
    handles.forEach(ShmMemoryHandle::close);
  }
}
