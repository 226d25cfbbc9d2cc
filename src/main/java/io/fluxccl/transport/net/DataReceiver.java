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
  private static final int RECEIVED = 2;
  private static final int FLUSHING = 3;
  private static final int STORING = 4;
  private static final int DONE = 5;

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

  // Messages that were ever posted, done, given away.
  private long posted;
  private long done;

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
   * Posts a receive, of whose memory the caller has a use that becomes this one's.
   *
   * @param signal whether it is 8 bytes that must be stored at once
   * @return which place it has, or -1: not now
   */
  int post(OwnedMemory target, long offset, int length, boolean signal) {
    int slot = (int) (posted % capacity);
    if (states[slot] != FREE) {
      return -1;
    }
    if (target.isStaged() && length > StagingSlots.SLOT_BYTES) {
      throw new ProtocolViolation("a part of " + length + " bytes for memory that is staged");
    }
    NetMemory registration = target.isStaged() ? slots.registration() : memories.at(target, offset);
    long address = target.isStaged() ? slots.address(slot) : target.address() + offset;
    NetRequest request = comm.irecv(address, length, 0, registration);
    if (request == null) {
      return -1;
    }
    states[slot] = RECEIVING;
    targets[slot] = target;
    requests[slot] = request;
    registrations[slot] = registration;
    addresses[slot] = address;
    lengths[slot] = length;
    offsets[slot] = offset;
    signals[slot] = signal;
    posted++;
    return slot;
  }

  /** Sees what has come; returns how much. */
  int progress() {
    int work = 0;
    while (done < posted && advance((int) (done % capacity))) {
      done++;
      work++;
    }
    return work;
  }

  private boolean advance(int slot) {
    if (states[slot] == RECEIVING && requests[slot].test()) {
      long size = requests[slot].size(0);
      if (size != lengths[slot]) {
        throw new ProtocolViolation(
            String.format(
                "a write of %s bytes was announced, and %s bytes came, or the network plugin"
                    + " does not tell sizes",
                lengths[slot], size));
      }
      states[slot] = targets[slot].isOnHost() ? DONE : RECEIVED;
    }
    if (states[slot] == RECEIVED && targets[slot].isStaged()) {
      store(slot);
      states[slot] = STORING;
    }
    if (states[slot] == STORING && slots.isDone(slot)) {
      states[slot] = DONE;
    }
    if (states[slot] == RECEIVED) {
      flushAddress[0] = addresses[slot];
      flushLength[0] = lengths[slot];
      flushMemory[0] = registrations[slot];
      requests[slot] = comm.iflush(1, flushAddress, flushLength, flushMemory);
      states[slot] = requests[slot] == null ? DONE : FLUSHING;
    }
    if (states[slot] == FLUSHING && requests[slot].test()) {
      states[slot] = DONE;
    }
    return states[slot] == DONE;
  }

  private void store(int slot) {
    if (signals[slot]) {
      slots.storeSignal(slot, targets[slot], offsets[slot]);
    } else {
      slots.store(slot, targets[slot], offsets[slot], (int) lengths[slot]);
    }
  }

  /** Whether what has that place is there; then the place is free again. */
  boolean take(int slot) {
    if (states[slot] != DONE) {
      return false;
    }
    endUse(slot);
    return true;
  }

  private void endUse(int slot) {
    OwnedMemory target = targets[slot];
    states[slot] = FREE;
    targets[slot] = null;
    target.endUse();
  }

  /** Whether something that goes to that memory is on its way. */
  boolean uses(OwnedMemory memory) {
    for (OwnedMemory target : targets) {
      if (target == memory) {
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
