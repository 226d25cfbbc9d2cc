// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import java.util.List;
import java.util.stream.IntStream;

/**
 * The slots of bytes that arrive for this rank's memory: bodies, and payloads for memory that this
 * process can't store to. The network receives a body into its memory, or into a staging slot from
 * which the device copies it. Slots are used in the order of the messages. Confined to the agent;
 * allocates nothing in steady state.
 */
final class ReceivedBodies {
  private static final int FREE = 0;
  private static final int RECEIVING = 1;
  private static final int STORING = 2;
  private static final int DONE = 3;

  private final int capacity;
  private final int[] states;
  private final long[] messages;
  private final OwnedMemory[] targets;
  private final long[] addresses;
  private final int[] lengths;
  private final long[] offsets;
  private final boolean[] signals;

  /** Null if the network can access all memory. */
  private final StagingSlots slots;

  // The numbers of slots taken so far, and of those whose bytes have been received.
  private long taken;
  private long received;

  /**
   * Creates the slots.
   *
   * @param limit the most bodies that are not done
   * @param staging null if the network can access all memory of this rank
   */
  ReceivedBodies(int limit, Staging staging, Link link) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.receiving(link, capacity);
    this.capacity = capacity;
    this.states = new int[capacity];
    this.messages = new long[capacity];
    this.targets = new OwnedMemory[capacity];
    this.addresses = new long[capacity];
    this.lengths = new int[capacity];
    this.offsets = new long[capacity];
    this.signals = new boolean[capacity];
  }

  /**
   * Takes a slot for the bytes of a message.
   *
   * @param target the memory; the caller's use of it passes to this object
   * @param signal whether the bytes are a signal that the device must store as one word
   * @return the slot, or -1 if no slot is free now
   */
  int take(long message, OwnedMemory target, long offset, int length, boolean signal) {
    int slot = (int) (taken % capacity);
    if (states[slot] != FREE) {
      return -1;
    }
    if (target.isStaged() && length > StagingSlots.SLOT_BYTES) {
      throw new ProtocolViolation("a part of " + length + " bytes for memory that is staged");
    }
    states[slot] = RECEIVING;
    messages[slot] = message;
    targets[slot] = target;
    addresses[slot] = target.isStaged() ? slots.address(slot) : target.address() + offset;
    lengths[slot] = length;
    offsets[slot] = offset;
    signals[slot] = signal;
    taken++;
    return slot;
  }

  /** Returns the address that a slot's bytes are received to. */
  long address(int slot) {
    return addresses[slot];
  }

  /** Returns the number of the message that a slot belongs to. */
  long message(int slot) {
    return messages[slot];
  }

  /** Returns the slot whose bytes are to arrive next, or -1 if there is none. */
  int next() {
    return received == taken ? -1 : (int) (received % capacity);
  }

  /** Makes the bytes of the {@link #next} slot visible in their memory. */
  void received(int slot) {
    received++;
    if (!targets[slot].isStaged()) {
      states[slot] = DONE;
      return;
    }
    if (signals[slot]) {
      slots.storeSignal(slot, targets[slot], offsets[slot]);
    } else {
      slots.store(slot, targets[slot], offsets[slot], lengths[slot]);
    }
    states[slot] = STORING;
  }

  /** Frees the slot that was taken last, whose bytes will not arrive. */
  void cancel(int slot) {
    taken--;
    endUse(slot);
  }

  /** Frees a slot whose bytes are in place. Returns whether they are. */
  boolean free(int slot) {
    if (states[slot] != DONE && (states[slot] != STORING || !slots.isDone(slot))) {
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

  /** Returns whether bytes arrive in that memory. Copies by the device do not count. */
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

  /**
   * Releases all slots and memories. Called after the link is closed, when nothing is in flight.
   */
  void abandon() {
    List<AutoCloseable> uses =
        IntStream.range(0, capacity)
            .filter(slot -> targets[slot] != null)
            .<AutoCloseable>mapToObj(slot -> () -> endUse(slot))
            .toList();
    // Closes every resource even if closing one fails.
    Closing.all(slots == null ? null : slots::close, () -> Closing.all(uses));
  }
}
