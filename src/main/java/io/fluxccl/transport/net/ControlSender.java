// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Sends control messages in order, from a ring of bytes that holds each message until it is done.
 * Without bodies a message is done when the network has taken it. With bodies the link can be
 * replaced: a message is done when the peer has confirmed it, and its bytes and its body stay as
 * they are until then. Confined to the agent; allocates nothing.
 */
final class ControlSender {
  private static final int NO_BODY = -1;

  /** The most bodies that the peer has not confirmed. */
  static final int CONFIRMED_BODIES = 128;

  /** The most messages that the peer has not confirmed. */
  private static final int CONFIRMED_MESSAGES = 4096;

  /** The length in bytes of a ring of messages that the peer confirms. */
  private static final int CONFIRMED_BYTES = 512 << 10;

  /** The number of confirmations to request while one ring's capacity of messages is sent. */
  private static final int CONFIRMATIONS = 4;

  private static final int ALIGNMENT = 64;

  /** The most messages that are not done. */
  private final int capacity;

  /** The most messages that the network has not taken; others wait outside of the ring. */
  private final int limit;

  /** The length of the ring in bytes. A slot for a confirmation follows it. */
  private final int ringBytes;

  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetRequest[] requests;
  private final int[] lengths;

  /** The offset in the ring of each message's first byte. */
  private final int[] offsets;

  /** The bytes of the ring that each message occupies. */
  private final int[] occupied;

  /** The offset in the ring for the next message; a message of any length fits there. */
  private int next;

  /** The bytes of the ring that are occupied. */
  private int used;

  // Indexes of arrays are numbers of messages without their upper bits.
  private final int slotMask;
  private final int requestMask;

  /** The rail whose bytes are sent as the bodies of messages; null if messages have no bodies. */
  private final DataSender bodies;

  /** Null if the ends did not agree on checksums. */
  private final Checksum checksum;

  /** The slot of each message's body in {@link #bodies}, or {@link #NO_BODY}. */
  private final int[] places;

  private NetSendComm comm;
  private NetMemory registration;

  // The numbers of messages claimed, posted, taken by the network, confirmed, and done so far.
  private long claimed;
  private long posted;
  private long taken;
  private long confirmed;
  private long done;

  // The numbers of messages, of their bytes and of bodies posted since one asked for a
  // confirmation.
  private int unasked;
  private int unaskedBytes;
  private int unaskedBodies;

  /** True if the peer needs a confirmation that no message has brought it yet. */
  private boolean confirmationDue;

  /** The confirmation in flight, in the slot after the ring; or null. */
  private NetRequest confirmation;

  /** The number of the peer's messages that the last message posted has confirmed. */
  private long lastConfirmed;

  /**
   * Creates a sender.
   *
   * @param limit the most messages that may be in flight in the network
   * @param bodies the rail whose bytes are sent as the bodies of messages, or null if there are
   *     none
   */
  ControlSender(NetSendComm comm, int limit, DataSender bodies, boolean checksums) {
    this.bodies = bodies;
    this.checksum = checksums ? new Checksum() : null;
    this.capacity = bodies == null ? limit : CONFIRMED_MESSAGES;
    this.ringBytes = bodies == null ? limit * ControlMessage.MAX_BYTES : CONFIRMED_BYTES;
    // One request of the limit is reserved for a confirmation.
    this.limit = bodies == null ? limit : limit - 1;
    this.memory =
        BufferUtil.allocateDirectAligned(ringBytes + ControlMessage.HEADER_BYTES, ALIGNMENT);
    this.buffer = new UnsafeBuffer(memory);
    int slots = BitUtil.findNextPositivePowerOfTwo(capacity);
    this.slotMask = slots - 1;
    this.requests = new NetRequest[BitUtil.findNextPositivePowerOfTwo(limit)];
    this.requestMask = requests.length - 1;
    this.places = new int[slots];
    this.lengths = new int[slots];
    this.offsets = new int[slots];
    this.occupied = new int[slots];
    use(comm);
  }

  private void use(NetSendComm link) {
    comm = link;
    registration = link.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
  }

  /** Returns whether a message can be {@linkplain #put put}. */
  boolean hasRoom() {
    return claimed - taken < limit
        && claimed - done < capacity
        && used + ControlMessage.MAX_BYTES <= ringBytes;
  }

  /** Returns whether the peer, or at least the network, has received all messages. */
  boolean isIdle() {
    return claimed == taken;
  }

  /** Returns whether the peer has still to confirm a message. */
  boolean awaitsConfirmation() {
    return confirmed < posted;
  }

  /** Returns the number of messages that the peer has confirmed. */
  long confirmed() {
    return confirmed;
  }

  /** Returns the number of messages of the peer that the last message posted has confirmed. */
  long lastConfirmed() {
    return lastConfirmed;
  }

  /** Returns the address for the payload of the message that is put next. */
  long payloadAddress() {
    return buffer.addressOffset() + next + ControlMessage.HEADER_BYTES;
  }

  /** Puts a message, for which there must be room. The caller has already stored its payload. */
  void put(int type, int rail, long memoryId, long offset, long value, int payload) {
    int slot = slot(claimed);
    putHeader(next, type, rail, memoryId, offset, value);
    offsets[slot] = next;
    lengths[slot] = ControlMessage.HEADER_BYTES + payload;
    places[slot] = NO_BODY;
    claimed++;
    int bytes = BitUtil.align(lengths[slot], ALIGNMENT);
    int left = ringBytes - next - bytes;
    if (left < ControlMessage.MAX_BYTES) {
      // The next message lies in one piece, at the start.
      bytes += left;
      next = 0;
    } else {
      next += bytes;
    }
    occupied[slot] = bytes;
    used += bytes;
  }

  private void putHeader(int at, int type, int rail, long memoryId, long offset, long value) {
    buffer.putInt(at + ControlMessage.TYPE, type);
    buffer.putShort(at + ControlMessage.RAIL, (short) rail);
    buffer.putShort(at + ControlMessage.FLAGS, (short) 0);
    buffer.putLong(at + ControlMessage.MEMORY, memoryId);
    buffer.putLong(at + ControlMessage.OFFSET, offset);
    buffer.putLong(at + ControlMessage.VALUE, value);
  }

  /**
   * Attaches the bytes in a slot of {@link #bodies} to the message that was put last, as its body.
   */
  void attach(int place) {
    places[slot(claimed - 1)] = place;
  }

  /** Sends a confirmation, unless a message that is posted at once confirms as much. */
  void confirm() {
    confirmationDue = true;
  }

  /**
   * Takes a confirmation.
   *
   * @param count the number of messages that the peer has received in full
   * @throws ProtocolViolation if fewer were sent
   */
  void confirmed(long count) {
    if (count > posted) {
      throw new ProtocolViolation(
          "a confirmation of " + count + " messages, of which " + posted + " were sent");
    }
    confirmed = Math.max(confirmed, count);
  }

  /**
   * Continues on another link, and resends all messages that the peer has not received in full.
   *
   * @param received the number of messages that the peer has received in full
   * @throws ProtocolViolation if fewer were sent, or the peer has confirmed more
   */
  void resume(NetSendComm link, long received) {
    if (received < confirmed) {
      throw new ProtocolViolation(
          "a resumption at message " + received + ", of which " + confirmed + " were confirmed");
    }
    confirmed(received);
    use(link);
    taken = received;
    posted = received;
    confirmation = null;
    free();
    unasked = 0;
    unaskedBytes = 0;
    unaskedBodies = 0;
  }

  private int slot(long message) {
    return (int) message & slotMask;
  }

  private int request(long message) {
    return (int) message & requestMask;
  }

  /**
   * Posts waiting messages, takes completions, and returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  int progress(long received) {
    int work = 0;
    // After a resumption more messages than usual may be waiting.
    while (posted < claimed && posted - taken < limit) {
      int slot = slot(posted);
      NetRequest request = bodies == null ? post(slot) : postWithBody(slot, places[slot], received);
      if (request == null) {
        break;
      }
      requests[request(posted)] = request;
      posted++;
      work++;
    }
    while (taken < posted && requests[request(taken)].test()) {
      taken++;
      work++;
    }
    free();
    return bodies == null ? work : work + postConfirmation(received);
  }

  /** Frees the slots of messages that are done; the network may learn late that it has sent one. */
  private void free() {
    long end = bodies == null ? taken : Math.min(taken, confirmed);
    while (done < end) {
      int slot = slot(done);
      used -= occupied[slot];
      if (places[slot] != NO_BODY) {
        bodies.sent();
      }
      done++;
    }
  }

  private NetRequest post(int slot) {
    long address = buffer.addressOffset() + offsets[slot];
    return comm.isend(address, lengths[slot], 0, registration);
  }

  private NetRequest postWithBody(int slot, int place, long received) {
    if (place != NO_BODY && !bodies.isReady(place)) {
      return null;
    }
    long body = place == NO_BODY ? 0 : bodies.address(place);
    int bodyLength = place == NO_BODY ? 0 : bodies.length(place);
    boolean asks =
        (unasked + 1) * CONFIRMATIONS >= capacity
            || (unaskedBytes + lengths[slot]) * CONFIRMATIONS >= ringBytes
            || place != NO_BODY && (unaskedBodies + 1) * CONFIRMATIONS >= bodies.capacity();
    short flags = asks ? ControlMessage.CONFIRM_AT_ONCE : 0;
    int at = offsets[slot];
    seal(at, lengths[slot], flags, received, body, bodyLength);
    NetRequest request =
        comm.isend(
            buffer.addressOffset() + at,
            lengths[slot],
            registration,
            body,
            bodyLength,
            posted + 1 < claimed && posted + 1 - taken < limit);
    if (request != null) {
      unasked = asks ? 0 : unasked + 1;
      unaskedBytes = asks ? 0 : unaskedBytes + lengths[slot];
      unaskedBodies = asks ? 0 : unaskedBodies + (place == NO_BODY ? 0 : 1);
      lastConfirmed = received;
      confirmationDue = false;
    }
    return request;
  }

  /**
   * Stores the header fields that are known only at the time of sending, and the checksums. The
   * header checksum covers the message number, which detects loss, duplication and reordering.
   */
  private void seal(int at, int length, short flags, long received, long body, int bodyLength) {
    buffer.putShort(at + ControlMessage.FLAGS, flags);
    buffer.putLong(at + ControlMessage.RECEIVED, received);
    buffer.putInt(at + ControlMessage.CHECKSUM, 0);
    buffer.putInt(at + ControlMessage.BODY_CHECKSUM, 0);
    if (checksum != null) {
      buffer.putInt(at + ControlMessage.BODY_CHECKSUM, checksum.of(body, bodyLength));
      buffer.putInt(at + ControlMessage.CHECKSUM, (int) posted);
      buffer.putInt(at + ControlMessage.CHECKSUM, checksum.of(buffer.addressOffset() + at, length));
    }
  }

  private int postConfirmation(long received) {
    if (confirmation != null && confirmation.test()) {
      confirmation = null;
    }
    if (!confirmationDue || confirmation != null) {
      return 0;
    }
    int at = ringBytes;
    putHeader(at, ControlMessage.CONFIRM, 0, 0, 0, 0);
    seal(at, ControlMessage.HEADER_BYTES, (short) 0, received, 0, 0);
    confirmation =
        comm.isend(
            buffer.addressOffset() + at, ControlMessage.HEADER_BYTES, registration, 0, 0, false);
    if (confirmation != null) {
      lastConfirmed = received;
      confirmationDue = false;
    }
    return 1;
  }
}
