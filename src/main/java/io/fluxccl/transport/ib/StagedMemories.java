package io.fluxccl.transport.ib;

import java.security.SecureRandom;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * This rank's memories that peers reach through staging, by the ids that they are told: random, so
 * that only who was told one can name it. Looking one up allocates nothing. Any thread.
 */
final class StagedMemories {
  private final SecureRandom random;

  /** Replaced as a whole, by who holds this object's monitor. */
  private volatile Long2ObjectHashMap<IbMemoryHandle> byId = new Long2ObjectHashMap<>();

  StagedMemories(SecureRandom random) {
    this.random = random;
  }

  /** A new id, none of which is 0. */
  synchronized long newId() {
    long id;
    do {
      id = random.nextLong();
    } while (id == 0 || byId.containsKey(id));
    return id;
  }

  synchronized void add(IbMemoryHandle handle) {
    Long2ObjectHashMap<IbMemoryHandle> more = new Long2ObjectHashMap<>(byId);
    more.put(handle.id(), handle);
    byId = more;
  }

  synchronized void remove(long id) {
    Long2ObjectHashMap<IbMemoryHandle> fewer = new Long2ObjectHashMap<>(byId);
    fewer.remove(id);
    byId = fewer;
  }

  /** The memory of an id, or null. */
  IbMemoryHandle get(long id) {
    return byId.get(id);
  }
}
