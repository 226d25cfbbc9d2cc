package io.fluxccl.transport.net;

/**
 * A control message, little-endian. Its payload, an inline write's bytes or an error's text,
 * follows the header. The bytes of other writes arrive on a rail, or as the body of the message.
 *
 * <pre>
 *    0  int32 type      4  int32 rail       8  int64 memory
 *   16  int64 offset   24  int64 value: a length, a signal's value, a ticket
 * </pre>
 */
final class ControlMessage {
  static final int HEADER_BYTES = 32;
  static final int TYPE = 0;
  static final int RAIL = 4;
  static final int MEMORY = 8;
  static final int OFFSET = 16;
  static final int VALUE = 24;

  /** The length in bytes of the longest write that is sent inline. */
  static final int INLINE_LIMIT = 4096;

  /** The room for the longest message in bytes, a number of whole cache lines. */
  static final int MAX_BYTES = HEADER_BYTES + INLINE_LIMIT + 32;

  /** A write whose bytes follow the header. */
  static final int INLINE = 1;

  /** A write whose bytes arrive on a rail, or as the body of the message. */
  static final int DATA = 2;

  /** A signal. */
  static final int UPDATE = 3;

  /**
   * A signal into memory that the receiving process can't store to: its 8 bytes arrive on rail 0.
   */
  static final int UPDATE_DATA = 4;

  /** A request for an {@link #ACK} once all earlier messages are in place. */
  static final int FLUSH = 5;

  /** The acknowledgement that everything before a flush is in place. */
  static final int ACK = 6;

  /** The final message after an error, whose text follows the header. */
  static final int ERROR = 7;

  /** The final message of an orderly close: the sender writes no more. */
  static final int GOODBYE = 8;

  private ControlMessage() {}
}
