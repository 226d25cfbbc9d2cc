// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Sends the bytes of writes on one rail, in order, from their source memory or a staging slot. If
 * they are sent as the bodies of control messages, it only keeps them until those are done.
 * Confined to the agent; allocates nothing in steady state.
 */
final class DataSender {
  private final NetSendComm comm;
  private final CommMemory memories;
  private final int capacity;
  private final long[] addresses;
  private final int[] lengths;
  private final NetMemory[] registrations;
  private final OwnedMemory[] sources;
  private final NetRequest[] requests;

  /** Null if the network can access all memory. */
  private final StagingSlots slots;

  // The numbers of messages put, posted and done so far.
  private long put;
  private long posted;
  private long done;

  /**
   * Creates a sender.
   *
   * @param comm the rail; null if the bytes are sent as the bodies of control messages
   * @param limit the most messages that are not done
   * @param staging null if the network can access all memory of this rank
   */
  DataSender(NetSendComm comm, int limit, Staging staging) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.sending(comm, capacity);
    this.comm = comm;
    this.memories = comm == null ? null : new CommMemory(comm);
    this.capacity = capacity;
    this.addresses = new long[capacity];
    this.lengths = new int[capacity];
    this.registrations = new NetMemory[capacity];
    this.sources = new OwnedMemory[capacity];
    this.requests = new NetRequest[capacity];
  }

  int capacity() {
    return capacity;
  }

  boolean hasRoom() {
    return put - done < capacity;
  }

  /** Puts a part of a memory to send. The caller's use of the memory passes to this sender. */
  void put(OwnedMemory source, long offset, int length) {
    int slot = (int) (put % capacity);
    if (source.isStaged()) {
      slots.fetch(slot, source, offset, length);
      registrations[slot] = slots.registration();
      addresses[slot] = slots.address(slot);
    } else {
      registrations[slot] = memories == null ? null : memories.at(source, offset);
      addresses[slot] = source.address() + offset;
    }
    lengths[slot] = length;
    sources[slot] = source;
    put++;
  }

  /** Puts bytes to send from memory that the caller owns and keeps registered. */
  void put(NetMemory registration, long address, int length) {
    int slot = (int) (put % capacity);
    registrations[slot] = registration;
    addresses[slot] = address;
    lengths[slot] = length;
    sources[slot] = null;
    put++;
  }

  /** Returns whether the bytes in that slot can be sent. */
  boolean isReady(int place) {
    return slots == null || slots.isDone(place);
  }

  long address(int place) {
    return addresses[place];
  }

  int length(int place) {
    return lengths[place];
  }

  /** Frees the oldest slot, whose bytes the peer has received as the body of a message. */
  void sent() {
    endUse((int) (done % capacity));
    posted++;
    done++;
  }

  /** Returns the slot of the next message, below {@link #capacity}. */
  int nextPlace() {
    return (int) (put % capacity);
  }

  /** Posts waiting messages, takes completions, and returns the work count. */
  int progress() {
    int work = 0;
    while (posted < put) {
      int slot = (int) (posted % capacity);
      if (!isReady(slot)) {
        break;
      }
      NetRequest request = comm.isend(addresses[slot], lengths[slot], 0, registrations[slot]);
      if (request == null) {
        break;
      }
      requests[slot] = request;
      posted++;
      work++;
    }
    while (done < posted && requests[(int) (done % capacity)].test()) {
      endUse((int) (done % capacity));
      done++;
      work++;
    }
    return work;
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
        .<AutoCloseable>mapToObj(slot -> () -> endUse(slot))
        .toList();
  }
}
