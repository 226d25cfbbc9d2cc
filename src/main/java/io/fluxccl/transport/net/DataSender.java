package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Sends the bytes of writes on one rail, from where they are, in order. Confined to the agent;
 * allocates nothing in steady state.
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

  /** Null where the network reaches all memory. */
  private final StagingSlots slots;

  // Messages that were ever put, posted, done.
  private long put;
  private long posted;
  private long done;

  DataSender(NetSendComm comm, int limit, Staging staging) {
    int capacity = staging == null ? limit : Math.min(limit, StagingSlots.MAX_SLOTS);
    this.slots = staging == null ? null : staging.sending(comm, capacity);
    this.comm = comm;
    this.memories = new CommMemory(comm);
    this.capacity = capacity;
    this.addresses = new long[capacity];
    this.lengths = new int[capacity];
    this.registrations = new NetMemory[capacity];
    this.sources = new OwnedMemory[capacity];
    this.requests = new NetRequest[capacity];
  }

  boolean hasRoom() {
    return put - done < capacity;
  }

  /** Sends a part of memory, of which the caller has a use that becomes this one's. */
  void put(OwnedMemory source, long offset, int length) {
    int slot = (int) (put % capacity);
    if (source.isStaged()) {
      slots.fetch(slot, source, offset, length);
      registrations[slot] = slots.registration();
      addresses[slot] = slots.address(slot);
    } else {
      registrations[slot] = memories.at(source, offset);
      addresses[slot] = source.address() + offset;
    }
    lengths[slot] = length;
    sources[slot] = source;
    put++;
  }

  /** Sends bytes of memory that is the caller's and stays. */
  void put(NetMemory registration, long address, int length) {
    int slot = (int) (put % capacity);
    registrations[slot] = registration;
    addresses[slot] = address;
    lengths[slot] = length;
    sources[slot] = null;
    put++;
  }

  /** Whether the bytes at that place can be sent. */
  boolean isReady(int place) {
    return slots == null || slots.isDone(place);
  }

  long address(int place) {
    return addresses[place];
  }

  int length(int place) {
    return lengths[place];
  }

  /** The oldest bytes were sent as the body of a control message. */
  void sent() {
    endUse((int) (done % capacity));
    posted++;
    done++;
  }

  /** Which of {@link #capacity} places the next message has. */
  int nextPlace() {
    return (int) (put % capacity);
  }

  /** Posts what waits and sees what is done; returns how much. */
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
        .<AutoCloseable>mapToObj(slot -> () -> endUse(slot))
        .toList();
  }
}
