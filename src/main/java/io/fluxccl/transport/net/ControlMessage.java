package io.fluxccl.transport.net;

/**
 * A control message, little-endian. What comes with it, an inline write's bytes or an error's text,
 * is behind the header; the bytes of other writes come on a connection of their own.
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

  /** The longest write that travels within its message. */
  static final int INLINE_LIMIT = 4096;

  /** Room for the longest message, whole cache lines. */
  static final int MAX_BYTES = HEADER_BYTES + INLINE_LIMIT + 32;

  /** A write whose bytes are behind the header. */
  static final int INLINE = 1;

  /** A write whose bytes come on a rail. */
  static final int DATA = 2;

  /** A signal. */
  static final int UPDATE = 3;

  /** A signal into memory that this process can't store to: its 8 bytes come on rail 0. */
  static final int UPDATE_DATA = 4;

  /** Asks for an {@link #ACK} when all before is in place. */
  static final int FLUSH = 5;

  /** All up to a flush is in place. */
  static final int ACK = 6;

  /** The other side did what it must not; its text is behind the header. */
  static final int ERROR = 7;

  /** This side writes no more. */
  static final int GOODBYE = 8;

  private ControlMessage() {}
}
