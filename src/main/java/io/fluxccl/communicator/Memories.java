package io.fluxccl.communicator;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.EnumMap;
import java.util.Map;

/** Memory of this rank made reachable, and that of peers opened, by each of several transports. */
final class Memories {
  private final Bootstrap bootstrap;
  private final TransportContexts transports;

  Memories(Bootstrap bootstrap, TransportContexts transports) {
    this.bootstrap = bootstrap;
    this.transports = transports;
  }

  /** {@link Communicator#registerMemory}. */
  RegisteredMemory register(DeviceBuffer buffer, TransportFlags flags) {
    if (flags.asSet().isEmpty()) {
      throw new InvalidUsage("registerMemory needs at least one transport");
    }
    int rank = bootstrap.rank();
    MemoryOrigin origin =
        new MemoryOrigin(
            rank,
            bootstrap.hostHash(rank),
            bootstrap.processHash(rank),
            buffer.address(),
            buffer.size());
    Map<Transport, MemoryHandle> handles = new EnumMap<>(Transport.class);
    try {
      for (Transport transport : flags.asSet()) {
        handles.put(transport, transports.of(transport).register(buffer));
      }
    } catch (RuntimeException e) {
      handles.values().forEach(MemoryHandle::close);
      throw e;
    }
    return RegisteredMemory.local(origin, buffer, handles);
  }

  /** What a peer has sent, by those of its transports that this rank has, too. */
  RegisteredMemory open(RegisteredMemoryCodec.Decoded memory) {
    MemoryOrigin origin = memory.origin();
    Map<Transport, MemoryHandle> handles = new EnumMap<>(Transport.class);
    try {
      memory
          .wires()
          .forEach(
              (transport, wire) -> {
                if (reaches(transport, origin)) {
                  transports
                      .ifAvailable(transport)
                      .ifPresent(context -> handles.put(transport, context.open(wire, origin)));
                }
              });
    } catch (RuntimeException e) {
      handles.values().forEach(MemoryHandle::close);
      throw e;
    }
    TransportFlags offered = TransportFlags.of(memory.wires().keySet().toArray(new Transport[0]));
    return RegisteredMemory.remote(origin, offered, handles);
  }

  /** Memory that is mapped, not sent to, can only be used on its own host. */
  private boolean reaches(Transport transport, MemoryOrigin origin) {
    boolean mapped = transport == Transport.SHM || transport == Transport.CUDA_IPC;
    return !mapped || origin.hostHash() == bootstrap.hostHash(bootstrap.rank());
  }
}
