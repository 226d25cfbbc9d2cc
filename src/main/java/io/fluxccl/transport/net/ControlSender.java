package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Sends control messages in order, from a ring with a slot for each message that may be in flight.
 * Confined to the agent; allocates nothing.
 */
final class ControlSender {
  private static final int NO_BODY = -1;

  private final NetSendComm comm;
  private final int capacity;
  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetMemory registration;
  private final NetRequest[] requests;
  private final int[] lengths;

  /** The rail whose bytes are sent as the bodies of messages; null if messages have no bodies. */
  private final DataSender bodies;

  /** The slot of each message's body in {@link #bodies}, or {@link #NO_BODY}. */
  private final int[] places;

  // The numbers of messages claimed, posted and done so far.
  private long claimed;
  private long posted;
  private long done;

  /**
   * Creates a sender.
   *
   * @param bodies the rail whose bytes are sent as the bodies of messages, or null if there are
   *     none
   */
  ControlSender(NetSendComm comm, int capacity, DataSender bodies) {
    this.comm = comm;
    this.bodies = bodies;
    this.places = new int[capacity];
    this.capacity = capacity;
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    this.registration = comm.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
    this.requests = new NetRequest[capacity];
    this.lengths = new int[capacity];
  }

  /** Returns whether a message can be {@linkplain #put put}. */
  boolean hasRoom() {
    return claimed - done < capacity;
  }

  /** Returns whether the peer, or at least the network, has received all messages. */
  boolean isIdle() {
    return claimed == done;
  }

  /** Returns the address for the payload of the message that is put next. */
  long payloadAddress() {
    return buffer.addressOffset() + index(claimed) + ControlMessage.HEADER_BYTES;
  }

  /** Puts a message, for which there must be room. The caller has already stored its payload. */
  void put(int type, int rail, long memoryId, long offset, long value, int payload) {
    int at = index(claimed);
    buffer.putInt(at + ControlMessage.TYPE, type);
    buffer.putInt(at + ControlMessage.RAIL, rail);
    buffer.putLong(at + ControlMessage.MEMORY, memoryId);
    buffer.putLong(at + ControlMessage.OFFSET, offset);
    buffer.putLong(at + ControlMessage.VALUE, value);
    lengths[slot(claimed)] = ControlMessage.HEADER_BYTES + payload;
    places[slot(claimed)] = NO_BODY;
    claimed++;
  }

  /**
   * Attaches the bytes in a slot of {@link #bodies} to the message that was put last, as its body.
   */
  void attach(int place) {
    places[slot(claimed - 1)] = place;
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int index(long message) {
    return slot(message) * ControlMessage.MAX_BYTES;
  }

  /** Posts waiting messages, takes completions, and returns the work count. */
  int progress() {
    int work = 0;
    while (posted < claimed) {
      int slot = slot(posted);
      NetRequest request = bodies == null ? post(slot) : postWithBody(slot, places[slot]);
      if (request == null) {
        break;
      }
      requests[slot] = request;
      posted++;
      work++;
    }
    while (done < posted && requests[slot(done)].test()) {
      if (places[slot(done)] != NO_BODY) {
        bodies.sent();
      }
      done++;
      work++;
    }
    return work;
  }

  private NetRequest post(int slot) {
    return comm.isend(buffer.addressOffset() + index(posted), lengths[slot], 0, registration);
  }

  private NetRequest postWithBody(int slot, int place) {
    if (place != NO_BODY && !bodies.isReady(place)) {
      return null;
    }
    return comm.isend(
        buffer.addressOffset() + index(posted),
        lengths[slot],
        registration,
        place == NO_BODY ? 0 : bodies.address(place),
        place == NO_BODY ? 0 : bodies.length(place),
        posted + 1 < claimed);
  }
}
