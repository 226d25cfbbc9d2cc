// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Receives the bytes of writes on one rail, in order, into their target memory. A flush follows
 * each receive into a GPU's memory. If the network can't access that memory, the device copies the
 * bytes there from a staging slot. Confined to the agent; allocates nothing in steady state.
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

  /** Null if the network can access all memory. */
  private final StagingSlots slots;

  // The ranges of one flush.
  private final long[] flushAddress = new long[1];
  private final long[] flushLength = new long[1];
  private final NetMemory[] flushMemory = new NetMemory[1];

  // The numbers of messages posted so far, and of those received, whose flush or copy has begun.
  private long posted;
  private long received;

  /**
   * Creates a receiver.
   *
   * @param comm the rail; null if the bytes arrive as the bodies of control messages
   * @param limit the most messages that are not done
   * @param staging null if the network can access all memory of this rank
   */
  DataReceiver(NetRecvComm comm, int limit, Staging staging) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.receiving(comm, capacity);
    this.comm = comm;
    this.memories = comm == null ? null : new CommMemory(comm);
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
   * @param target the memory; the caller's use of it passes to this receiver
   * @return the slot, or -1 if no slot or request is free now
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
   * Reserves a slot for bytes that arrive with a control message. The caller reports their arrival
   * to {@link #received}.
   *
   * @param target the memory; the caller's use of it passes to this receiver
   * @param signal whether the bytes are a signal: 8 bytes that must be stored as one word
   * @return the slot, or -1 if no slot is free now
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

  /** Returns the address that a slot's bytes are received to. */
  long address(int slot) {
    return addresses[slot];
  }

  /** Stores the bytes of the slot that was reserved last, which have arrived. */
  void received(int slot) {
    store(slot);
    received++;
  }

  /** Frees the slot that was reserved last, whose bytes will not arrive. */
  void cancel(int slot) {
    posted--;
    endUse(slot);
  }

  /** Takes receives that have completed, and returns the work count. */
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
          Text.of(
              "write announced with %s bytes, but %s bytes arrived (or the network plugin does"
                  + " not report sizes)",
              lengths[slot], size));
    }
    return true;
  }

  /**
   * Makes received bytes visible in their memory: enqueues a copy to staged memory, or starts a
   * flush of a GPU's memory.
   */
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

  /** Frees a slot whose bytes are in place. Returns whether they are. */
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

  /** Returns whether a receive into that memory is in flight. Copies by the device do not count. */
  boolean uses(OwnedMemory memory) {
    for (int slot = 0; slot < capacity; slot++) {
      if (targets[slot] == memory && states[slot] != STORING) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether the device is still copying to or from staged memory. */
  boolean isCopying() {
    return slots != null && slots.isCopying();
  }

  void forget(OwnedMemory memory) {
    if (memories != null) {
      memories.forget(memory);
    }
  }

  /**
   * Releases all slots and memories. Called after the comm is closed, when nothing is in flight.
   */
  void abandon() {
    // Closes every resource even if closing one fails.
    Closing.all(slots == null ? null : slots::close, () -> Closing.all(uses()));
  }

  private List<AutoCloseable> uses() {
    return IntStream.range(0, capacity)
        .filter(slot -> targets[slot] != null)
        .<AutoCloseable>mapToObj(slot -> () -> endUse(slot))
        .toList();
  }
}
