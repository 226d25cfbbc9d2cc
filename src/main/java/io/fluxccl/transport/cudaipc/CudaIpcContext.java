// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaMapping;
import io.fluxccl.device.cuda.CudaMemory;
import io.fluxccl.device.cuda.CudaMemoryName;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.mapped.MappedConnection;
import io.fluxccl.transport.mapped.MappedContext;
import io.fluxccl.transport.mapped.MappedMemory;
import io.fluxccl.transport.mapped.MappedMemoryDescriptor;
import java.util.regex.Pattern;

/** The CUDA IPC transport of one communicator. */
final class CudaIpcContext extends MappedContext {
  /** A PCI bus id in the operating system's format, for example 0000:3b:00.0. */
  private static final Pattern PCI_BUS_ID =
      Pattern.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");

  private final CudaDevice device;

  CudaIpcContext(TransportEnvironment environment, CudaDevice device) {
    super(Transport.CUDA_IPC, environment);
    this.device = device;
  }

  CudaDevice device() {
    return device;
  }

  @Override
  protected MappedMemory mapOwn(DeviceBuffer buffer) {
    if (buffer.device() != device || !(buffer instanceof CudaBuffer)) {
      throw InvalidUsage.of(
          "CUDA_IPC of rank %s takes memory of %s; this is memory of %s: %s",
          environment().rank(),
          device,
          buffer.device(),
          buffer.device().kind() == DeviceKind.HOST
              ? "register it for SHM or ETHERNET"
              : "allocate it with the device that the communicator was made with");
    }
    CudaBuffer memory = (CudaBuffer) buffer;
    memory
        .unshareableReason()
        .ifPresent(
            why -> {
              throw InvalidUsage.of(
                  "CUDA_IPC of rank %s: %s; register it for ETHERNET or another network",
                  environment().rank(), why);
            });
    memory.retain();
    byte[] name = Closing.onFailure(memory::release, () -> memory.allocation().name().encode());
    MappedMemoryDescriptor place =
        new MappedMemoryDescriptor(Transport.CUDA_IPC, name, memory.allocationOffset());
    return new MappedMemory(this, place, memory.address(), memory.size(), memory::release);
  }

  @Override
  protected MappedMemory mapPeers(
      MappedMemoryDescriptor place, MemoryOrigin origin, boolean sameProcess) {
    CudaMemoryName name = place.nameBy(CudaMemoryName::decode, origin);
    place.checkWithin(name.size(), origin);
    CudaMapping mapping = map(name, origin, sameProcess);
    return new MappedMemory(
        this, place, mapping.address() + place.offset(), origin.size(), mapping::release);
  }

  private CudaMapping map(CudaMemoryName name, MemoryOrigin origin, boolean sameProcess) {
    try {
      return sameProcess ? mapOwned(name, origin) : device.map(name);
    } catch (DeviceFailure | InvalidUsage e) {
      String message =
          Text.of(
              "memory of rank %s can't be mapped for rank %s: %s",
              origin.rank(), environment().rank(), e.getMessage());
      throw new TransportFailure(origin.rank(), message, e);
    }
  }

  /** Maps an allocation of this process by its name; an address that a peer sent is not trusted. */
  private CudaMapping mapOwned(CudaMemoryName name, MemoryOrigin origin) {
    CudaMemory owned = CudaMemory.retainOwned(name).orElseThrow(() -> closedByOwner(origin, name));
    try {
      return device.map(name);
    } finally {
      owned.release();
    }
  }

  @Override
  protected String location() {
    return device.pciBusId();
  }

  /** Asks the driver, so that an unreachable peer is detected before the first write. */
  @Override
  protected void checkReachable(int rank, String pciBusId) {
    checkBusId(rank, pciBusId);
    try {
      device.requireReachable(pciBusId);
    } catch (DeviceFailure | InvalidUsage e) {
      String message =
          Text.of(
              "rank %s's GPU %s is out of reach of rank %s's GPU %s: %s; use ETHERNET between them",
              rank, pciBusId, environment().rank(), device.pciBusId(), e.getMessage());
      throw new TransportFailure(rank, message, e);
    }
  }

  static void checkBusId(int rank, String pciBusId) {
    if (!PCI_BUS_ID.matcher(pciBusId).matches()) {
      throw TransportFailure.of(
          rank, "rank %s sent what is no PCI bus id, of length %s", rank, pciBusId.length());
    }
  }

  @Override
  protected MappedConnection newConnection(int remoteRank, int tag) {
    try {
      return new CudaIpcConnection(this, remoteRank, tag);
    } catch (DeviceFailure e) {
      String message = Text.of("a CUDA_IPC connection to rank %s: %s", remoteRank, e.getMessage());
      throw new TransportFailure(remoteRank, message, e);
    }
  }
}
