// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.stream.IntStream;
import org.agrona.BufferUtil;

/**
 * The slots of the bodies that are being sent, each in its source memory or in a staging slot,
 * until their messages are done. Slots are used in the order of the messages. Confined to the
 * agent; allocates nothing in steady state.
 */
final class SentBodies {
  private final int capacity;
  private final long[] addresses;
  private final int[] lengths;
  private final OwnedMemory[] sources;

  /** The values of signals that are sent as bodies, one word for each slot. */
  private final long signals;

  private final ByteBuffer signalMemory;

  /** Null if the network can access all memory. */
  private final StagingSlots slots;

  // The numbers of bodies put and done so far.
  private long put;
  private long done;

  /**
   * Creates the slots.
   *
   * @param limit the most bodies that are not done
   * @param staging null if the network can access all memory of this rank
   */
  SentBodies(int limit, Staging staging, Link link) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.sending(link, capacity);
    this.capacity = capacity;
    this.addresses = new long[capacity];
    this.lengths = new int[capacity];
    this.sources = new OwnedMemory[capacity];
    this.signalMemory = BufferUtil.allocateDirectAligned(capacity * Long.BYTES, Long.BYTES);
    this.signals = BufferUtil.address(signalMemory);
    Closing.onFailure(
        slots == null ? null : slots::close,
        () -> link.register(signals, signalMemory.capacity(), true));
  }

  int capacity() {
    return capacity;
  }

  boolean hasRoom() {
    return put - done < capacity;
  }

  /** Puts a part of a memory; the caller's use of the memory passes to this object. */
  int put(OwnedMemory source, long offset, int length) {
    int slot = (int) (put % capacity);
    if (source.isStaged()) {
      slots.fetch(slot, source, offset, length);
      addresses[slot] = slots.address(slot);
    } else {
      addresses[slot] = source.address() + offset;
    }
    lengths[slot] = length;
    sources[slot] = source;
    put++;
    return slot;
  }

  /** Puts the value of a signal. */
  int put(long value) {
    int slot = (int) (put % capacity);
    addresses[slot] = signals + (long) slot * Long.BYTES;
    HostMemory.putLong(addresses[slot], value);
    lengths[slot] = Long.BYTES;
    sources[slot] = null;
    put++;
    return slot;
  }

  /** Returns whether the bytes in that slot can be sent. */
  boolean isReady(int slot) {
    return slots == null || slots.isDone(slot);
  }

  long address(int slot) {
    return addresses[slot];
  }

  int length(int slot) {
    return lengths[slot];
  }

  /**
   * Returns the memory that holds the bytes of a slot, or null if they are in memory of this end.
   */
  OwnedMemory memory(int slot) {
    OwnedMemory source = sources[slot];
    return source == null || source.isStaged() ? null : source;
  }

  /** Frees the oldest slot. */
  void done() {
    endUse((int) (done % capacity));
    done++;
  }

  private void endUse(int slot) {
    OwnedMemory source = sources[slot];
    if (source != null) {
      sources[slot] = null;
      source.release();
    }
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
        IntStream.range(0, capacity).<AutoCloseable>mapToObj(slot -> () -> endUse(slot)).toList();
    // Closes every resource even if closing one fails.
    Closing.all(slots == null ? null : slots::close, () -> Closing.all(uses));
  }
}
