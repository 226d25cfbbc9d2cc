// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.SegmentName;
import io.fluxccl.device.host.SharedSegment;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.mapped.MappedConnection;
import io.fluxccl.transport.mapped.MappedContext;
import io.fluxccl.transport.mapped.MappedMemory;
import io.fluxccl.transport.mapped.MappedMemoryDescriptor;
import java.util.HashMap;
import java.util.Map;

/** The shared-memory transport of one communicator. */
final class ShmContext extends MappedContext {
  /**
   * The segments of other processes that this context has mapped, each once for all memories in it.
   * This map's monitor guards the map and the segments' use counts.
   */
  private final Map<SegmentName, SharedSegment> mapped = new HashMap<>();

  ShmContext(TransportEnvironment environment) {
    super(Transport.SHM, environment);
  }

  @Override
  protected MappedMemory mapOwn(DeviceBuffer buffer) {
    Device own = environment().device();
    if (!(buffer instanceof HostBuffer)) {
      throw InvalidUsage.of(
          "SHM of rank %s takes memory of the host; this is memory of %s: use CUDA_IPC for GPUs",
          environment().rank(), buffer.device());
    }
    if (own.kind() == DeviceKind.HOST && buffer.device() != own) {
      throw InvalidUsage.of(
          "SHM of rank %s takes memory of %s; this is memory of %s",
          environment().rank(), own, buffer.device());
    }
    HostBuffer memory = (HostBuffer) buffer;
    memory
        .unshareableReason()
        .ifPresent(
            why -> {
              throw new InvalidUsage("SHM of rank " + environment().rank() + ": " + why);
            });
    memory.retain();
    SharedSegment segment = memory.segment();
    MappedMemoryDescriptor place =
        new MappedMemoryDescriptor(Transport.SHM, segment.name().encode(), memory.segmentOffset());
    return new MappedMemory(this, place, memory.address(), memory.size(), segment::release);
  }

  @Override
  protected MappedMemory mapPeers(
      MappedMemoryDescriptor place, MemoryOrigin origin, boolean sameProcess) {
    SegmentName name = place.nameBy(SegmentName::decode, origin);
    place.checkWithin(name.size(), origin);
    SharedSegment segment = sameProcess ? owned(name, origin) : map(name, origin);
    Runnable unmap = sameProcess ? segment::release : () -> unmap(segment);
    return new MappedMemory(this, place, segment.address() + place.offset(), origin.size(), unmap);
  }

  /**
   * Returns the segment of this process by its name; an address that a peer sent is not trusted.
   */
  private static SharedSegment owned(SegmentName name, MemoryOrigin origin) {
    return SharedSegment.retainOwned(name).orElseThrow(() -> closedByOwner(origin, name));
  }

  private SharedSegment map(SegmentName name, MemoryOrigin origin) {
    synchronized (mapped) {
      SharedSegment segment = mapped.get(name);
      if (segment != null) {
        segment.retain();
        return segment;
      }
      try {
        segment = SharedSegment.open(name);
      } catch (DeviceFailure e) {
        throw new TransportFailure(
            origin.rank(), "memory of rank " + origin.rank() + ": " + e.getMessage(), e);
      }
      mapped.put(name, segment);
      return segment;
    }
  }

  private void unmap(SharedSegment segment) {
    synchronized (mapped) {
      segment.release();
      if (segment.users() == 0) {
        mapped.remove(segment.name());
      }
    }
  }

  /** Returns the number of mapped segments of other processes. For tests. */
  int mappedSegments() {
    synchronized (mapped) {
      return mapped.size();
    }
  }

  @Override
  protected MappedConnection newConnection(int remoteRank, int tag) {
    return new ShmConnection(this, remoteRank, tag);
  }
}
