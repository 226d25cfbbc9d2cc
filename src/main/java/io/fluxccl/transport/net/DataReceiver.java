package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Receives the bytes of writes on one rail, to where they go, in order; what goes to a GPU is
 * flushed behind that, or copied there by the device where the network can't reach it. Confined to
 * the agent; allocates nothing in steady state.
 */
final class DataReceiver {
  private static final int FREE = 0;
  private static final int RECEIVING = 1;
  private static final int FLUSHING = 2;
  private static final int STORING = 3;
  private static final int DONE = 4;

  private final NetRecvComm comm;
  private final CommMemory memories;
  private final int capacity;
  private final int[] states;
  private final OwnedMemory[] targets;
  private final NetRequest[] requests;
  private final NetMemory[] registrations;
  private final long[] addresses;
  private final long[] lengths;
  private final long[] offsets;
  private final boolean[] signals;

  /** Null where the network reaches all memory. */
  private final StagingSlots slots;

  // One flush's ranges.
  private final long[] flushAddress = new long[1];
  private final long[] flushLength = new long[1];
  private final NetMemory[] flushMemory = new NetMemory[1];

  // Messages that were ever posted; received, their flush or copy begun.
  private long posted;
  private long received;

  DataReceiver(NetRecvComm comm, int limit, Staging staging) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.receiving(comm, capacity);
    this.comm = comm;
    this.memories = new CommMemory(comm);
    this.capacity = capacity;
    this.states = new int[capacity];
    this.targets = new OwnedMemory[capacity];
    this.requests = new NetRequest[capacity];
    this.registrations = new NetMemory[capacity];
    this.addresses = new long[capacity];
    this.lengths = new long[capacity];
    this.offsets = new long[capacity];
    this.signals = new boolean[capacity];
  }

  /**
   * Posts a receive.
   *
   * @param target of which the caller has a use that becomes this one's
   * @return which place it has, or -1: not now
   */
  int post(OwnedMemory target, long offset, int length) {
    int slot = (int) (posted % capacity);
    if (states[slot] != FREE) {
      return -1;
    }
    checkPart(target, length);
    NetMemory registration = target.isStaged() ? slots.registration() : memories.at(target, offset);
    NetRequest request = comm.irecv(addressOf(slot, target, offset), length, 0, registration);
    if (request == null) {
      return -1;
    }
    take(slot, target, offset, length);
    requests[slot] = request;
    registrations[slot] = registration;
    return slot;
  }

  /**
   * Takes a place for bytes that come otherwise; {@link #received} says when they are there.
   *
   * @param target of which the caller has a use that becomes this one's
   * @param signal whether it is 8 bytes that must be stored at once
   * @return the place, or -1: not now
   */
  int place(OwnedMemory target, long offset, int length, boolean signal) {
    int slot = (int) (posted % capacity);
    if (states[slot] != FREE) {
      return -1;
    }
    checkPart(target, length);
    take(slot, target, offset, length);
    signals[slot] = signal;
    return slot;
  }

  private static void checkPart(OwnedMemory target, int length) {
    if (target.isStaged() && length > StagingSlots.SLOT_BYTES) {
      throw new ProtocolViolation("a part of " + length + " bytes for memory that is staged");
    }
  }

  private long addressOf(int slot, OwnedMemory target, long offset) {
    return target.isStaged() ? slots.address(slot) : target.address() + offset;
  }

  private void take(int slot, OwnedMemory target, long offset, int length) {
    states[slot] = RECEIVING;
    targets[slot] = target;
    requests[slot] = null;
    addresses[slot] = addressOf(slot, target, offset);
    lengths[slot] = length;
    offsets[slot] = offset;
    signals[slot] = false;
    posted++;
  }

  /** Where the bytes of a place go. */
  long address(int slot) {
    return addresses[slot];
  }

  /** The bytes of the place that was taken last are there. */
  void received(int slot) {
    store(slot);
    received++;
  }

  /** Sees what has come; returns how much. */
  int progress() {
    int work = 0;
    while (received < posted && isReceived((int) (received % capacity))) {
      store((int) (received % capacity));
      received++;
      work++;
    }
    return work;
  }

  private boolean isReceived(int slot) {
    if (requests[slot] == null || !requests[slot].test()) {
      return false;
    }
    long size = requests[slot].size(0);
    if (size != lengths[slot]) {
      throw new ProtocolViolation(
          String.format(
              "a write of %s bytes was announced, and %s bytes came, or the network plugin"
                  + " does not tell sizes",
              lengths[slot], size));
    }
    return true;
  }

  /** Has what was received copied to its memory, or made visible there, where it is a GPU's. */
  private void store(int slot) {
    states[slot] = DONE;
    if (signals[slot]) {
      slots.storeSignal(slot, targets[slot], offsets[slot]);
      states[slot] = STORING;
    } else if (targets[slot].isStaged()) {
      slots.store(slot, targets[slot], offsets[slot], (int) lengths[slot]);
      states[slot] = STORING;
    } else if (!targets[slot].isOnHost()) {
      flushAddress[0] = addresses[slot];
      flushLength[0] = lengths[slot];
      flushMemory[0] = registrations[slot];
      requests[slot] = comm.iflush(1, flushAddress, flushLength, flushMemory);
      states[slot] = requests[slot] == null ? DONE : FLUSHING;
    }
  }

  private boolean isDone(int slot) {
    return states[slot] == DONE
        || states[slot] == STORING && slots.isDone(slot)
        || states[slot] == FLUSHING && requests[slot].test();
  }

  /** Whether what has that place is there; then the place is free again. */
  boolean take(int slot) {
    if (!isDone(slot)) {
      return false;
    }
    endUse(slot);
    return true;
  }

  private void endUse(int slot) {
    OwnedMemory target = targets[slot];
    states[slot] = FREE;
    targets[slot] = null;
    target.release();
  }

  /** Whether something that goes to that memory is on its way, other than in a device's copy. */
  boolean uses(OwnedMemory memory) {
    for (int slot = 0; slot < capacity; slot++) {
      if (targets[slot] == memory && states[slot] != STORING) {
        return true;
      }
    }
    return false;
  }

  /** Whether the device still copies to or from memory that the network can't reach. */
  boolean isCopying() {
    return slots != null && slots.isCopying();
  }

  void forget(OwnedMemory memory) {
    memories.forget(memory);
  }

  /** The comm is closed: nothing is in flight any more. */
  void abandon() {
    // What can't be closed keeps nothing else from it.
    Closing.all(slots == null ? null : slots::close, () -> Closing.all(uses()));
  }

  private List<AutoCloseable> uses() {
    return IntStream.range(0, capacity)
        .filter(slot -> targets[slot] != null)
        .<AutoCloseable>mapToObj(slot -> () -> endUse(slot))
        .toList();
  }
}
