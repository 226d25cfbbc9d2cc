package io.fluxccl.transport.cudaipc;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaAllocation;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaMapping;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** CUDA IPC as one communicator uses it. */
final class CudaIpcContext implements TransportContext {
  private final TransportEnvironment environment;
  private final CudaDevice device;
  private final Set<CudaIpcMemoryHandle> handles = ConcurrentHashMap.newKeySet();
  private final Set<CudaIpcConnection> connections = ConcurrentHashMap.newKeySet();
  private volatile boolean closed;

  CudaIpcContext(TransportEnvironment environment, CudaDevice device) {
    this.environment = environment;
    this.device = device;
  }

  @Override
  public Transport transport() {
    return Transport.CUDA_IPC;
  }

  TransportEnvironment environment() {
    return environment;
  }

  CudaDevice device() {
    return device;
  }

  @Override
  public MemoryHandle register(DeviceBuffer buffer) {
    refuseWhenClosed();
    if (buffer.device() != device || !(buffer instanceof CudaBuffer)) {
      throw new InvalidUsage(
          "CUDA_IPC of rank "
              + environment.rank()
              + " takes memory of "
              + device
              + "; this is memory of "
              + buffer.device()
              + (buffer.device().kind() == DeviceKind.HOST
                  ? ": register it for SHM or ETHERNET"
                  : ": allocate it with the device that the communicator was made with"));
    }
    CudaBuffer memory = (CudaBuffer) buffer;
    memory.retain();
    try {
      byte[] wire =
          CudaIpcMemoryCodec.encode(
              new CudaIpcMemoryCodec.Place(memory.allocation().name(), memory.allocationOffset()));
      return keep(
          new CudaIpcMemoryHandle(this, wire, memory.address(), memory.size(), memory::release));
    } catch (RuntimeException | Error e) {
      memory.release();
      throw e;
    }
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    refuseWhenClosed();
    CudaIpcMemoryCodec.Place place = CudaIpcMemoryCodec.decode(wire, origin.size(), origin.rank());
    refuseOtherHost(origin.rank(), origin.hostHash());
    CudaMapping mapping = map(place, origin);
    return keep(
        new CudaIpcMemoryHandle(
            this,
            wire.clone(),
            mapping.address() + place.offset(),
            origin.size(),
            mapping::release));
  }

  private CudaMapping map(CudaIpcMemoryCodec.Place place, MemoryOrigin origin) {
    int rank = origin.rank();
    try {
      if (origin.processHash() != environment.processHash()) {
        return device.map(place.allocation());
      }
      // Looked up rather than believed: an address that a peer sends is not followed.
      CudaAllocation owned =
          CudaAllocation.retainOwned(place.allocation())
              .orElseThrow(
                  () ->
                      new TransportFailure(
                          rank,
                          "rank "
                              + rank
                              + " of this process has closed the memory it sent ("
                              + place.allocation()
                              + "); keep it open until its peers have received it"));
      try {
        return device.map(place.allocation());
      } finally {
        owned.release();
      }
    } catch (DeviceFailure | InvalidUsage e) {
      throw new TransportFailure(
          rank,
          "memory of rank "
              + rank
              + " can't be mapped for rank "
              + environment.rank()
              + ": "
              + e.getMessage(),
          e);
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
              + ", which CUDA_IPC can't reach; use ETHERNET");
    }
  }

  /** The driver says so before the first write does. */
  void requireReachable(int rank, String pciBusId) {
    try {
      device.requireReachable(pciBusId);
    } catch (DeviceFailure | InvalidUsage e) {
      throw new TransportFailure(
          rank,
          "rank "
              + rank
              + "'s GPU "
              + pciBusId
              + " is out of reach of rank "
              + environment.rank()
              + "'s GPU "
              + device.pciBusId()
              + ": "
              + e.getMessage()
              + "; use ETHERNET between them",
          e);
    }
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    refuseWhenClosed();
    if (remoteRank < 0 || remoteRank >= environment.nRanks()) {
      throw new InvalidUsage(
          "remoteRank=" + remoteRank + " is outside 0 to " + (environment.nRanks() - 1));
    }
    if (config.transport() != Transport.CUDA_IPC) {
      throw new InvalidUsage("endpoint for " + config.transport() + " asked of CUDA_IPC");
    }
    return new CudaIpcEndpoint(this, remoteRank, tag);
  }

  CudaIpcConnection connect(int remoteRank, int tag) {
    CudaIpcConnection connection;
    try {
      connection = new CudaIpcConnection(this, remoteRank, tag);
    } catch (DeviceFailure e) {
      throw new TransportFailure(
          remoteRank, "a CUDA_IPC connection to rank " + remoteRank + ": " + e.getMessage(), e);
    }
    connections.add(connection);
    if (closed) {
      connection.close();
      refuseWhenClosed();
    }
    return connection;
  }

  void remove(CudaIpcConnection connection) {
    connections.remove(connection);
  }

  private MemoryHandle keep(CudaIpcMemoryHandle handle) {
    handles.add(handle);
    if (closed) {
      handle.close();
      refuseWhenClosed();
    }
    return handle;
  }

  /** Copies and kernels that are enqueued still use the memory by its address. */
  void letGo(CudaIpcMemoryHandle handle, Runnable release) {
    handles.remove(handle);
    device.whenEnqueuedWorkIsDone(release);
  }

  private void refuseWhenClosed() {
    if (closed) {
      throw new InvalidUsage("CUDA_IPC of rank " + environment.rank() + " is closed");
    }
  }

  @Override
  public void close() {
    closed = true;
    connections.forEach(CudaIpcConnection::close);
    handles.forEach(CudaIpcMemoryHandle::close);
  }
}
