// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.PostQueue;
import java.nio.charset.StandardCharsets;
import java.util.function.LongConsumer;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Turns posts into messages, and sends these in order. A short write or a signal becomes one head.
 * A longer write is split into parts, each a head with a body. A ring of bytes holds each head
 * until its message is done. A message is done when the network has taken it, and, on a link that
 * can be replaced, the peer has confirmed it: until then its head and its body stay as they are.
 * Confined to the agent; allocates nothing in steady state.
 */
final class Sender {
  /**
   * The length of a part in bytes. It is short enough to spread a write over rails and to let the
   * receiver proceed.
   */
  private static final long PART = 1 << 20;

  private static final int MESSAGES_AT_A_TIME = 64;
  private static final int NO_BODY = -1;

  /** The most bodies that the peer has not confirmed. */
  private static final int CONFIRMED_BODIES = 128;

  /** The most messages that the peer has not confirmed. */
  private static final int CONFIRMED_MESSAGES = 4096;

  /** The length in bytes of a ring of messages that the peer confirms. */
  private static final int CONFIRMED_BYTES = 512 << 10;

  /** The number of confirmations to request while one ring's capacity of messages is sent. */
  private static final int CONFIRMATIONS = 4;

  private static final int ALIGNMENT = 64;

  private final PostQueue<NetMemoryHandle> queue;
  private final Link link;

  /** Whether the link can be replaced, so that the peer confirms what it has received. */
  private final boolean confirms;

  /** Receives the ticket of each flush that is requested from the peer. */
  private final LongConsumer asked;

  private final SentBodies bodies;
  private final long maxPart;

  /** Null if the ends did not agree on checksums. */
  private final Checksum checksum;

  /** The most messages that are not done. */
  private final int capacity;

  /** The most messages that the network has not taken; others wait outside of the ring. */
  private final int limit;

  /** The length of the ring in bytes. A slot for a confirmation follows it. */
  private final int ringBytes;

  private final UnsafeBuffer buffer;

  // Indexes of arrays are numbers of messages without their upper bits.
  private final int slotMask;
  private final int[] lengths;

  /** The offset in the ring of each message's first byte. */
  private final int[] offsets;

  /** The bytes of the ring that each message occupies. */
  private final int[] occupied;

  /** The slot of each message's body in {@link #bodies}, or {@link #NO_BODY}. */
  private final int[] places;

  /** The number of each posted message on the link. */
  private final long[] numbers;

  /** The offset in the ring for the next message; a message of any length fits there. */
  private int next;

  /** The bytes of the ring that are occupied. */
  private int used;

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

  /** The number on the link of the last confirmation, which is in the slot after the ring. */
  private long confirmation;

  /** The number of the peer's messages that the last message posted has confirmed. */
  private long lastConfirmed;

  /** The number of bytes of the oldest write that were put. */
  private long progress;

  /** True if the oldest post found no room; a confirmation or a ready socket makes room. */
  private boolean full;

  private long acknowledged;
  private long toAcknowledge;

  /**
   * Creates the sending side of a connection.
   *
   * @param checksums whether messages have checksums
   * @param staging null if the network can access all memory of this rank
   * @param asked receives the ticket of each flush that is requested from the peer
   */
  Sender(
      PostQueue<NetMemoryHandle> queue,
      Link link,
      boolean checksums,
      Staging staging,
      LongConsumer asked) {
    this.queue = queue;
    this.link = link;
    this.asked = asked;
    this.confirms = link instanceof ResumableLink;
    this.checksum = checksums ? new Checksum() : null;
    this.maxPart = Math.min(PART, link.maxBody());
    // One message of the limit is reserved for a confirmation.
    this.limit = confirms ? link.capacity() - 1 : link.capacity();
    this.capacity = confirms ? CONFIRMED_MESSAGES : limit;
    this.ringBytes = confirms ? CONFIRMED_BYTES : limit * ControlMessage.MAX_BYTES;
    this.buffer =
        new UnsafeBuffer(
            BufferUtil.allocateDirectAligned(ringBytes + ControlMessage.HEADER_BYTES, ALIGNMENT));
    int slots = BitUtil.findNextPositivePowerOfTwo(capacity);
    this.slotMask = slots - 1;
    this.places = new int[slots];
    this.lengths = new int[slots];
    this.offsets = new int[slots];
    this.occupied = new int[slots];
    this.numbers = new long[slots];
    this.bodies = new SentBodies(confirms ? CONFIRMED_BODIES : limit, staging, link);
    Closing.onFailure(
        bodies::abandon, () -> link.register(buffer.addressOffset(), buffer.capacity(), true));
  }

  /** Acknowledges a flush of the peer with the next message: everything before it is in place. */
  void acknowledge(long ticket) {
    toAcknowledge = ticket;
  }

  /**
   * Advances posts and messages, and returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  int progress(long received) {
    return putAcknowledgement() + putPosts() + send(received);
  }

  /**
   * Advances messages that were put, and acknowledgements, but not posts. Returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  int progressMessages(long received) {
    return putAcknowledgement() + send(received);
  }

  /** Returns whether the queue takes the oldest post. If not, later posts wait as well. */
  boolean takesPosts() {
    return !full;
  }

  /** Returns whether no message or acknowledgement is in flight. */
  boolean isIdle() {
    return toAcknowledge == acknowledged && claimed == taken;
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

  private boolean hasRoom() {
    return claimed - taken < limit
        && claimed - done < capacity
        && used + ControlMessage.MAX_BYTES <= ringBytes;
  }

  private int putAcknowledgement() {
    if (toAcknowledge == acknowledged || !hasRoom()) {
      return 0;
    }
    acknowledged = toAcknowledge;
    put(ControlMessage.ACK, 0, 0, acknowledged, 0, NO_BODY);
    return 1;
  }

  private int putPosts() {
    int count = 0;
    while (count < MESSAGES_AT_A_TIME && hasRoom() && putNext()) {
      count++;
    }
    full = count == 0 && queue.type() != PostQueue.NONE;
    return count;
  }

  private boolean putNext() {
    int type = queue.type();
    if (type == PostQueue.WRITE) {
      return putWrite(queue.target(), (OwnedMemory) queue.source());
    }
    if (type == PostQueue.UPDATE) {
      return putUpdate(queue.target());
    }
    if (type == PostQueue.FLUSH) {
      asked.accept(queue.targetOffset());
      put(ControlMessage.FLUSH, 0, 0, queue.targetOffset(), 0, NO_BODY);
      queue.pop();
      return true;
    }
    return false;
  }

  private boolean putWrite(NetMemoryHandle target, OwnedMemory source) {
    long left = queue.length() - progress;
    long targetOffset = queue.targetOffset() + progress;
    long sourceOffset = queue.sourceOffset() + progress;
    boolean isStored = target.isOnHost() || target.isStaged();
    if (queue.length() <= ControlMessage.INLINE_LIMIT && isStored && source.isOnHost()) {
      int bytes = (int) left;
      HostMemory.copy(payloadAddress(), source.address() + sourceOffset, bytes);
      put(ControlMessage.INLINE, target.id(), targetOffset, bytes, bytes, NO_BODY);
      queue.pop();
      source.release();
      return true;
    }
    if (!bodies.hasRoom()) {
      return false;
    }
    boolean staged = source.isStaged() || target.isStaged();
    int length =
        (int)
            Math.min(
                Math.min(left, staged ? Math.min(maxPart, StagingSlots.SLOT_BYTES) : maxPart),
                Math.min(untilNextPiece(targetOffset), untilNextPiece(sourceOffset)));
    // The queue keeps its use of the source until the slot takes it over: a copy may fail.
    int place = bodies.put(source, sourceOffset, length);
    if (length == left) {
      queue.pop();
      progress = 0;
    } else {
      progress += length;
      source.retain();
    }
    put(ControlMessage.DATA, target.id(), targetOffset, length, 0, place);
    return true;
  }

  private static long untilNextPiece(long offset) {
    return Link.PIECE - (offset & Link.PIECE - 1);
  }

  private boolean putUpdate(NetMemoryHandle target) {
    long value = queue.sourceOffset();
    if (target.isOnHost() || target.isStaged()) {
      put(ControlMessage.UPDATE, target.id(), queue.targetOffset(), value, 0, NO_BODY);
    } else if (bodies.hasRoom()) {
      int place = bodies.put(value);
      put(ControlMessage.UPDATE_DATA, target.id(), queue.targetOffset(), Long.BYTES, 0, place);
    } else {
      return false;
    }
    queue.pop();
    return true;
  }

  /** Puts a final message. Returns false if there is no room for it now. */
  boolean putFarewell(int type, String text) {
    if (!hasRoom()) {
      return false;
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int length = Math.min(bytes.length, ControlMessage.INLINE_LIMIT);
    buffer.putBytes(next + ControlMessage.HEADER_BYTES, bytes, 0, length);
    put(type, 0, 0, length, length, NO_BODY);
    return true;
  }

  private long payloadAddress() {
    return buffer.addressOffset() + next + ControlMessage.HEADER_BYTES;
  }

  /** Puts a message, for which there must be room. The caller has already stored its payload. */
  private void put(int type, long memoryId, long offset, long value, int payload, int place) {
    int slot = slot(claimed);
    putHeader(next, type, memoryId, offset, value);
    offsets[slot] = next;
    lengths[slot] = ControlMessage.HEADER_BYTES + payload;
    places[slot] = place;
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

  private void putHeader(int at, int type, long memoryId, long offset, long value) {
    buffer.putInt(at + ControlMessage.TYPE, type);
    buffer.putShort(at + ControlMessage.RAIL, (short) 0);
    buffer.putLong(at + ControlMessage.MEMORY, memoryId);
    buffer.putLong(at + ControlMessage.OFFSET, offset);
    buffer.putLong(at + ControlMessage.VALUE, value);
  }

  /** Sends a confirmation, unless a message that is posted at once confirms as much. */
  void confirm() {
    confirmationDue = confirms;
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
   * Continues on the replaced link, and resends all messages that the peer has not received in
   * full.
   *
   * @param received the number of messages that the peer has received in full
   * @throws ProtocolViolation if fewer were sent, or the peer has confirmed more
   */
  void resume(long received) {
    if (received < confirmed) {
      throw new ProtocolViolation(
          "a resumption at message " + received + ", of which " + confirmed + " were confirmed");
    }
    confirmed(received);
    taken = received;
    posted = received;
    confirmation = 0;
    free();
    unasked = 0;
    unaskedBytes = 0;
    unaskedBodies = 0;
  }

  private int slot(long message) {
    return (int) message & slotMask;
  }

  /**
   * Posts waiting messages, takes completions, and returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  private int send(long received) {
    int work = 0;
    // After a resumption more messages than usual may be waiting.
    while (posted < claimed && posted - taken < limit && post(received)) {
      posted++;
      work++;
    }
    long sent = link.taken();
    while (taken < posted && numbers[slot(taken)] <= sent) {
      taken++;
      work++;
    }
    free();
    return work + postConfirmation(received, sent);
  }

  /** Frees the slots of messages that are done; the network may learn late that it has sent one. */
  private void free() {
    long end = confirms ? Math.min(taken, confirmed) : taken;
    while (done < end) {
      int slot = slot(done);
      used -= occupied[slot];
      if (places[slot] != NO_BODY) {
        bodies.done();
      }
      done++;
    }
  }

  private boolean post(long received) {
    int slot = slot(posted);
    int place = places[slot];
    boolean hasBody = place != NO_BODY;
    if (hasBody && !bodies.isReady(place)) {
      return false;
    }
    long body = hasBody ? bodies.address(place) : 0;
    int bodyLength = hasBody ? bodies.length(place) : 0;
    int length = lengths[slot];
    boolean asks =
        confirms
            && ((unasked + 1) * CONFIRMATIONS >= capacity
                || (unaskedBytes + length) * CONFIRMATIONS >= ringBytes
                || hasBody && (unaskedBodies + 1) * CONFIRMATIONS >= bodies.capacity());
    int at = offsets[slot];
    seal(at, length, asks, received, body, bodyLength);
    boolean more = posted + 1 < claimed && posted + 1 - taken < limit;
    long number =
        link.send(
            buffer.addressOffset() + at,
            length,
            hasBody ? bodies.memory(place) : null,
            body,
            bodyLength,
            more);
    if (number == 0) {
      return false;
    }
    numbers[slot] = number;
    unasked = asks ? 0 : unasked + 1;
    unaskedBytes = asks ? 0 : unaskedBytes + length;
    unaskedBodies = asks ? 0 : unaskedBodies + (hasBody ? 1 : 0);
    lastConfirmed = received;
    confirmationDue = false;
    return true;
  }

  /**
   * Stores the header fields that are known only at the time of sending, and the checksums. The
   * header checksum covers the message number, which detects loss, duplication and reordering.
   */
  private void seal(int at, int length, boolean asks, long received, long body, int bodyLength) {
    buffer.putShort(at + ControlMessage.FLAGS, asks ? ControlMessage.CONFIRM_AT_ONCE : 0);
    buffer.putLong(at + ControlMessage.RECEIVED, received);
    buffer.putInt(at + ControlMessage.CHECKSUM, 0);
    buffer.putInt(at + ControlMessage.BODY_CHECKSUM, 0);
    if (checksum != null) {
      long head = buffer.addressOffset() + at;
      int payload = length - ControlMessage.HEADER_BYTES;
      int bytes =
          payload > 0
              ? checksum.of(head + ControlMessage.HEADER_BYTES, payload)
              : checksum.of(body, bodyLength);
      buffer.putInt(at + ControlMessage.BODY_CHECKSUM, bytes);
      buffer.putInt(at + ControlMessage.CHECKSUM, (int) posted);
      buffer.putInt(at + ControlMessage.CHECKSUM, checksum.of(head, ControlMessage.HEADER_BYTES));
    }
  }

  private int postConfirmation(long received, long sent) {
    if (!confirmationDue || confirmation > sent) {
      return 0;
    }
    int at = ringBytes;
    putHeader(at, ControlMessage.CONFIRM, 0, 0, 0);
    seal(at, ControlMessage.HEADER_BYTES, false, received, 0, 0);
    long number =
        link.send(buffer.addressOffset() + at, ControlMessage.HEADER_BYTES, null, 0, 0, false);
    if (number > 0) {
      confirmation = number;
      lastConfirmed = received;
      confirmationDue = false;
    }
    return 1;
  }

  /** Returns whether the device is still copying to or from staged memory. */
  boolean isCopying() {
    return bodies.isCopying();
  }

  /** Releases all memories. Called after the link is closed, when nothing is in flight. */
  void abandon() {
    bodies.abandon();
  }
}
