// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DmaBuf;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.net.Link;
import io.fluxccl.transport.net.OwnedMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * The registrations of memory with one comm. A memory of this rank is registered when first used,
 * in pieces, because some plug-ins register less than 2 GiB at once; no message crosses the
 * boundary of a piece. Memory of the link itself is registered when the link is opened. Confined to
 * the agent; allocates nothing for memory already registered.
 */
final class CommMemory {
  private final NetPlugin plugin;
  private final NetComm comm;
  private final Long2ObjectHashMap<NetMemory[]> known = new Long2ObjectHashMap<>();
  private final List<Own> own = new ArrayList<>();

  /** Memory of the link, which holds heads, or bodies that are not in a memory of this rank. */
  private record Own(long address, long size, NetMemory registration) {}

  CommMemory(NetPlugin plugin, NetComm comm) {
    this.plugin = plugin;
    this.comm = comm;
  }

  /** Registers memory of the link. */
  void register(long address, long size) {
    own.add(new Own(address, size, comm.register(address, size, PointerType.HOST)));
  }

  /**
   * Returns the registration that contains an address.
   *
   * @param memory that the address belongs to, or null if it belongs to the link's own memory
   */
  NetMemory at(OwnedMemory memory, long address) {
    if (memory != null) {
      return at(memory.id(), memory, address - memory.address());
    }
    for (int i = 0; ; i++) {
      Own each = own.get(i);
      if (address >= each.address && address < each.address + each.size) {
        return each.registration;
      }
    }
  }

  /**
   * Returns the registration of the piece that contains an offset, and registers the piece if
   * needed.
   */
  private NetMemory at(long id, OwnedMemory memory, long offset) {
    NetMemory[] pieces = known.get(id);
    if (pieces == null) {
      pieces = new NetMemory[(int) ((memory.size() - 1) / Link.PIECE) + 1];
      known.put(id, pieces);
    }
    int piece = (int) (offset / Link.PIECE);
    if (pieces[piece] == null) {
      long start = piece * Link.PIECE;
      pieces[piece] = register(memory, start, Math.min(Link.PIECE, memory.size() - start));
    }
    return pieces[piece];
  }

  /**
   * Registers a GPU's memory by a dma-buf where both ends of that can, otherwise by its address.
   */
  private NetMemory register(OwnedMemory memory, long start, long length) {
    PointerType type = memory.isOnHost() ? PointerType.HOST : PointerType.CUDA;
    boolean byDmaBuf =
        !memory.isOnHost()
            && plugin.properties(comm.device()).pointers().contains(PointerType.DMABUF);
    if (!byDmaBuf) {
      return comm.register(memory.address() + start, length, type);
    }
    FluxCclException refusal;
    try {
      Optional<NetMemory> registered = byDmaBuf(memory, start, length);
      if (registered.isPresent()) {
        return registered.get();
      }
      refusal = null;
    } catch (DeviceFailure | TransportFailure e) {
      refusal = e;
    }
    try {
      return comm.register(memory.address() + start, length, type);
    } catch (FluxCclException e) {
      if (refusal != null) {
        e.addSuppressed(refusal);
      }
      throw e;
    }
  }

  private Optional<NetMemory> byDmaBuf(OwnedMemory memory, long start, long length) {
    Optional<DmaBuf> exported = memory.buffer().exportDmaBuf();
    if (exported.isEmpty()) {
      return Optional.empty();
    }
    // The plug-in keeps the memory by its registration: the descriptor is not needed after it.
    try (DmaBuf dmaBuf = exported.get()) {
      return Optional.of(
          comm.registerDmaBuf(
              memory.address() + start,
              length,
              PointerType.CUDA,
              dmaBuf.offset() + start,
              dmaBuf.descriptor()));
    }
  }

  /** Deregisters memory of the link that was registered last. */
  void forgetLast() {
    own.remove(own.size() - 1).registration.close();
  }

  /** Deregisters a memory, which no transfer in flight uses. */
  void forget(OwnedMemory memory) {
    NetMemory[] pieces = known.remove(memory.id());
    if (pieces != null) {
      Closing.all(pieces);
    }
  }
}
