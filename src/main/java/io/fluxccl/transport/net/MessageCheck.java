// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Text;

/**
 * Checks the header of each message that arrives, and notes the range that the message writes.
 * Confined to the agent; allocates nothing.
 */
final class MessageCheck {
  private final ControlReceiver control;
  private final WriteRanges ranges;
  private final MemoryTable table;
  private final int rails;

  /**
   * Creates a check.
   *
   * @param ranges receives the range of each message
   * @param rails the number of rails; 0 if the bytes of long writes are the bodies of messages
   */
  MessageCheck(ControlReceiver control, WriteRanges ranges, MemoryTable table, int rails) {
    this.control = control;
    this.ranges = ranges;
    this.table = table;
    this.rails = rails;
  }

  /**
   * Checks a message whose head has arrived.
   *
   * @param number of the message, as for {@link ControlReceiver#checkHead}
   * @param bytes the length of the head
   * @param bodySize the length of the body
   * @throws CorruptMessage if the head has a wrong checksum
   * @throws ProtocolViolation if the peer must not send such a message
   */
  void check(long message, long number, long bytes, long bodySize) {
    control.checkHead(message, number, bytes, bodySize);
    if (bytes < ControlMessage.HEADER_BYTES) {
      throw new ProtocolViolation(
          "a message of " + bytes + " bytes arrived, or the network plugin does not report sizes");
    }
    int type = control.type(message);
    long value = control.value(message);
    boolean hasPayload =
        type == ControlMessage.INLINE
            || type == ControlMessage.ERROR
            || type == ControlMessage.GOODBYE;
    boolean hasBody = rails == 0 && type == ControlMessage.DATA;
    if (bodySize != (hasBody ? value : 0)) {
      throw new ProtocolViolation(
          "a message of type=" + type + ", value=" + value + " has a body of " + bodySize);
    }
    if (type < ControlMessage.INLINE
        || type > ControlMessage.CONFIRM
        || bytes - ControlMessage.HEADER_BYTES != (hasPayload ? value : 0)) {
      throw new ProtocolViolation(
          "a message of type=" + type + ", value=" + value + " has " + bytes + " bytes");
    }
    // Without rails the bytes of a write are the message's body; the peer must have sent some.
    if (rails == 0
        && (type == ControlMessage.UPDATE_DATA || type == ControlMessage.DATA && value <= 0)) {
      throw new ProtocolViolation("a message of type=" + type + " without its bytes");
    }
    ranges.clear(message);
    if (type <= ControlMessage.UPDATE_DATA) {
      checkTarget(message, type);
    }
  }

  private void checkTarget(long message, int type) {
    long offset = control.offset(message);
    boolean signal = type >= ControlMessage.UPDATE;
    long length = signal ? Long.BYTES : control.value(message);
    OwnedMemory target = target(message);
    if (!target.contains(offset, length) || length > Integer.MAX_VALUE) {
      throw new ProtocolViolation(
          Text.of(
              "a write of %s bytes at offset %s is outside the %s bytes of its memory",
              length, offset, target.size()));
    }
    int rail = control.rail(message);
    if (rail < 0 || rail >= Math.max(1, rails) || signal && (offset & Long.BYTES - 1) != 0) {
      throw new ProtocolViolation("a write at offset " + offset + " on rail " + rail);
    }
    boolean stored = type == ControlMessage.INLINE || type == ControlMessage.UPDATE;
    if (stored && !target.isOnHost() && !target.isStaged()) {
      throw new ProtocolViolation("bytes for a GPU's memory in a control message");
    }
    ranges.set(message, target.address() + offset, length, target.isOnHost());
  }

  /**
   * Returns the memory that a message writes to.
   *
   * @throws ProtocolViolation if there is none
   */
  OwnedMemory target(long message) {
    long id = control.memory(message);
    OwnedMemory target = table.get(id);
    if (target == null) {
      throw new ProtocolViolation(
          "memory id=0x" + Long.toHexString(id) + " is not, or no longer, registered");
    }
    return target;
  }
}
