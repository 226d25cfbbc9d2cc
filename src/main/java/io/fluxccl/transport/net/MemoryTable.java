// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.DeviceBuffer;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * This rank's registered memories by id. A lookup takes no lock and allocates nothing; a
 * registration copies the table. An id has 32 random bits above a sequence number, so it is never
 * reused and can't be guessed.
 */
final class MemoryTable {
  private final NetContext context;
  private final SecureRandom random;

  /** Replaced, never modified; the volatile store pairs with the agent's volatile load. */
  private volatile Long2ObjectHashMap<OwnedMemory> entries = new Long2ObjectHashMap<>();

  /** Guarded by this. */
  private int sequence;

  MemoryTable(NetContext context, SecureRandom random) {
    this.context = context;
    this.random = random;
  }

  synchronized OwnedMemory add(DeviceBuffer buffer, NetMemoryHandle.Place place) {
    long id = ((long) random.nextInt() << 32) | (sequence++ & 0xffff_ffffL);
    OwnedMemory memory = new OwnedMemory(context, id, buffer, place);
    Long2ObjectHashMap<OwnedMemory> changed = new Long2ObjectHashMap<>(entries);
    changed.put(id, memory);
    entries = changed;
    return memory;
  }

  /** Returns the memory with that id, or null. */
  OwnedMemory get(long id) {
    return entries.get(id);
  }

  synchronized void remove(OwnedMemory memory) {
    Long2ObjectHashMap<OwnedMemory> changed = new Long2ObjectHashMap<>(entries);
    changed.remove(memory.id());
    entries = changed;
  }

  List<OwnedMemory> all() {
    return new ArrayList<>(entries.values());
  }
}
