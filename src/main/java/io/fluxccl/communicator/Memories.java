// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Registers memory of this rank with transports, and opens memory of peers. */
final class Memories implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Memories.class);

  private final Bootstrap bootstrap;
  private final Device device;
  private final TransportContexts transports;
  private final Lifecycle lifecycle = new Lifecycle("the communicator");
  private Device hostDevice; // guarded by this

  Memories(Bootstrap bootstrap, Device device, TransportContexts transports) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.transports = transports;
  }

  /** {@link Communicator#hostDevice}. */
  synchronized Device hostDevice() {
    if (device.kind() == DeviceKind.HOST) {
      return device;
    }
    if (hostDevice == null) {
      lifecycle.checkOpen();
      hostDevice = lifecycle.own(HostDevice.create());
    }
    return hostDevice;
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
    } catch (RuntimeException | Error e) {
      CloseHelper.closeAll(e::addSuppressed, handles.values());
      throw e;
    }
    return RegisteredMemory.local(origin, buffer, handles);
  }

  /**
   * Opens a memory of a peer by those of its transports that this rank has, too. A transport that
   * can't be opened here is left out, unless there is no other. May block.
   */
  RegisteredMemory open(RegisteredMemoryCodec.Decoded memory) {
    MemoryOrigin origin = memory.origin();
    Map<Transport, MemoryHandle> handles = new EnumMap<>(Transport.class);
    List<RuntimeException> unopened = new ArrayList<>();
    try {
      for (Map.Entry<Transport, byte[]> offer : memory.wires().entrySet()) {
        if (reaches(offer.getKey(), origin)) {
          usable(offer.getKey(), unopened)
              .map(context -> context.open(offer.getValue(), origin))
              .ifPresent(handle -> handles.put(offer.getKey(), handle));
        }
      }
    } catch (RuntimeException | Error e) {
      CloseHelper.closeAll(e::addSuppressed, handles.values());
      throw e;
    }
    if (handles.isEmpty() && !unopened.isEmpty()) {
      throw unopened.get(0);
    }
    TransportFlags offered = TransportFlags.of(memory.wires().keySet().toArray(new Transport[0]));
    return RegisteredMemory.remote(origin, offered, handles);
  }

  /** Opens the memories that all ranks but this one have sent, or none of them. May block. */
  RegisteredMemory[] open(RegisteredMemory mine, List<byte[]> descriptions) {
    RegisteredMemory[] all = new RegisteredMemory[descriptions.size()];
    for (int peer = 0; peer < all.length; peer++) {
      try {
        all[peer] =
            peer == mine.rank()
                ? mine
                : open(RegisteredMemoryCodec.decode(descriptions.get(peer), peer));
      } catch (RuntimeException | Error e) {
        all[mine.rank()] = null;
        CloseHelper.closeAll(e::addSuppressed, all);
        throw e;
      }
    }
    return all;
  }

  private Optional<TransportContext> usable(Transport transport, List<RuntimeException> unopened) {
    try {
      return transports.ifAvailable(transport);
    } catch (RuntimeException e) {
      LOG.warn(
          "rank {} does not use {}, which can't be opened: {}",
          bootstrap.rank(),
          transport,
          e.getMessage());
      unopened.add(e);
      return Optional.empty();
    }
  }

  @Override
  public void close() {
    lifecycle.close();
  }

  /** Memory that is mapped, not sent to, can only be used on its own host. */
  private boolean reaches(Transport transport, MemoryOrigin origin) {
    boolean mapped = transport == Transport.SHM || transport == Transport.CUDA_IPC;
    return !mapped || origin.hostHash() == bootstrap.hostHash(bootstrap.rank());
  }
}
