// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Text;
import io.fluxccl.wire.RawView;
import java.nio.charset.StandardCharsets;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The ring of the heads that have arrived: checks each, reads its fields, and knows the range of
 * memory that its message writes. A message that writes nothing has an empty range. Confined to the
 * agent; allocates nothing in steady state.
 */
final class Heads {
  private final int capacity;
  private final UnsafeBuffer buffer;
  private final MemoryTable table;

  /** Whether bodies may have targets that only the network reaches. */
  private final boolean reachesGpus;

  /** Null if the ends did not agree on checksums. */
  private final Checksum checksum;

  private final long[] starts;
  private final long[] ends;
  private final boolean[] onHost;

  Heads(int capacity, MemoryTable table, boolean reachesGpus, boolean checksums) {
    this.capacity = capacity;
    this.table = table;
    this.reachesGpus = reachesGpus;
    this.checksum = checksums ? new Checksum() : null;
    this.buffer =
        new UnsafeBuffer(BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64));
    this.starts = new long[capacity];
    this.ends = new long[capacity];
    this.onHost = new boolean[capacity];
  }

  int capacity() {
    return capacity;
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int index(long message) {
    return slot(message) * ControlMessage.MAX_BYTES;
  }

  /** Returns the address of a message's head. */
  long address(long message) {
    return buffer.addressOffset() + index(message);
  }

  /** Returns the address of a message's payload, which follows its header. */
  long payload(long message) {
    return address(message) + ControlMessage.HEADER_BYTES;
  }

  int type(long message) {
    return buffer.getInt(index(message) + ControlMessage.TYPE);
  }

  private int flags(long message) {
    return buffer.getShort(index(message) + ControlMessage.FLAGS);
  }

  /** Returns whether the peer wants a message to be confirmed at once. */
  boolean asksConfirmation(long message) {
    return (flags(message) & ControlMessage.CONFIRM_AT_ONCE) != 0;
  }

  /** Returns how many numbered messages the peer had received in full when it sent this one. */
  long received(long message) {
    return buffer.getLong(index(message) + ControlMessage.RECEIVED);
  }

  long offset(long message) {
    return buffer.getLong(index(message) + ControlMessage.OFFSET);
  }

  long value(long message) {
    return buffer.getLong(index(message) + ControlMessage.VALUE);
  }

  /** Returns whether a message has a body. */
  boolean hasBody(long message) {
    int type = type(message);
    return type == ControlMessage.DATA || type == ControlMessage.UPDATE_DATA;
  }

  /** Returns the payload of a message as text. */
  String text(long message) {
    byte[] bytes = new byte[(int) value(message)];
    buffer.getBytes(index(message) + ControlMessage.HEADER_BYTES, bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /**
   * Checks the header of a message whose payload may not have arrived yet.
   *
   * @param number of the message among those that have one; of one without it, of the next
   * @return the length of the payload
   * @throws CorruptMessage if the header is not what the peer sent, or if the message is not the
   *     next one that it sent
   * @throws ProtocolViolation if the peer must not send such a message
   */
  int checkHeader(long message, long number) {
    if (checksum != null) {
      int at = index(message) + ControlMessage.CHECKSUM;
      int sent = buffer.getInt(at);
      buffer.putInt(at, (int) number);
      if (sent != checksum.of(address(message), ControlMessage.HEADER_BYTES)) {
        throw new CorruptMessage(ControlMessage.HEADER_BYTES);
      }
    }
    int type = type(message);
    long value = value(message);
    if (type < ControlMessage.INLINE || type > ControlMessage.CONFIRM) {
      throw malformed("a message of type=" + type + ", value=" + value);
    }
    boolean hasPayload =
        type == ControlMessage.INLINE
            || type == ControlMessage.ERROR
            || type == ControlMessage.GOODBYE;
    if (hasPayload && (value < 0 || value > ControlMessage.INLINE_LIMIT)) {
      throw malformed("a message of type=" + type + " with " + value + " bytes");
    }
    if (type == ControlMessage.DATA && (value < 1 || value > RawView.MAX_LENGTH)
        || type == ControlMessage.UPDATE_DATA && (value != Long.BYTES || !reachesGpus)) {
      throw malformed("a message of type=" + type + " without its bytes");
    }
    return hasPayload ? (int) value : 0;
  }

  /** Without checksums, a header that no peer sends was changed on its way. */
  private RuntimeException malformed(String text) {
    return checksum == null ? new CorruptMessage(text) : new ProtocolViolation(text);
  }

  /**
   * Checks a message whose head has arrived, and notes its range.
   *
   * @param payload the length of the payload
   * @throws CorruptMessage if the payload is not what the peer sent
   * @throws ProtocolViolation if the peer must not send such a message
   */
  void check(long message, int payload) {
    if (payload > 0) {
      checkBytes(message, payload(message), payload);
    }
    setRange(message, 0, 0, false);
    if (type(message) <= ControlMessage.UPDATE_DATA) {
      checkTarget(message);
    }
  }

  /**
   * Checks the body of a message that has arrived.
   *
   * @throws CorruptMessage if it is not what the peer sent
   */
  void checkBody(long message, long address) {
    checkBytes(message, address, value(message));
  }

  private void checkBytes(long message, long address, long length) {
    if (checksum != null
        && checksum.of(address, length)
            != buffer.getInt(index(message) + ControlMessage.BODY_CHECKSUM)) {
      throw new CorruptMessage(length);
    }
  }

  private void checkTarget(long message) {
    int type = type(message);
    long offset = offset(message);
    boolean signal = type >= ControlMessage.UPDATE;
    long length = signal ? Long.BYTES : value(message);
    OwnedMemory target = target(message);
    if (!target.contains(offset, length)) {
      throw new ProtocolViolation(
          Text.of(
              "a write of %s bytes at offset %s is outside the %s bytes of its memory",
              length, offset, target.size()));
    }
    if (signal && (offset & Long.BYTES - 1) != 0) {
      throw new ProtocolViolation("a signal at offset " + offset);
    }
    if (!hasBody(message) && !target.isOnHost() && !target.isStaged()) {
      throw new ProtocolViolation("bytes for a GPU's memory in a head");
    }
    setRange(message, target.address() + offset, length, target.isOnHost());
  }

  /**
   * Returns the memory that a message writes to.
   *
   * @throws ProtocolViolation if there is none
   */
  OwnedMemory target(long message) {
    long id = buffer.getLong(index(message) + ControlMessage.MEMORY);
    OwnedMemory target = table.get(id);
    if (target == null) {
      throw new ProtocolViolation(
          "memory id=0x" + Long.toHexString(id) + " is not, or no longer, registered");
    }
    return target;
  }

  private void setRange(long message, long start, long length, boolean isOnHost) {
    starts[slot(message)] = start;
    ends[slot(message)] = start + length;
    onHost[slot(message)] = isOnHost;
  }

  /** Returns the address of the first byte that a message writes. */
  long start(long message) {
    return starts[slot(message)];
  }

  /** Returns the number of bytes that a message writes. */
  long length(long message) {
    return ends[slot(message)] - starts[slot(message)];
  }

  /**
   * Returns whether any message from {@code from} up to {@code to}, exclusive, writes to memory
   * that this process can store to.
   */
  boolean isAnyOnHost(long from, long to) {
    for (long message = from; message < to; message++) {
      if (onHost[slot(message)]) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns whether a message from {@code from} on writes a byte that {@code message} writes too.
   */
  boolean overlapsEarlier(long from, long message) {
    long start = starts[slot(message)];
    long end = ends[slot(message)];
    for (long earlier = from; earlier < message; earlier++) {
      if (starts[slot(earlier)] < end && start < ends[slot(earlier)]) {
        return true;
      }
    }
    return false;
  }
}
