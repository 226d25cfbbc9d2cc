// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/**
 * The head of a message, little-endian. Its payload, an inline write's bytes or an error's text,
 * follows the header. The bytes of other writes are the body of the message.
 *
 * <pre>
 *    0  int32 type      4  int16 rail       6  int16 flags     8  int64 memory
 *   16  int64 offset   24  int64 value: a length, a signal's value, a ticket
 *   32  int64 received: how many numbered messages its sender had received in full
 *   40  int32 checksum of the header, with the message's number here
 *   44  int32 checksum of the payload or of the body
 * </pre>
 *
 * <p>On a connection that resumes, the messages of each direction are numbered from 0 in their
 * order; a message does not contain its number. {@link #CONFIRM} has no number; its checksum takes
 * that of the next message. The checksums are CRC-32C, and 0 where the ends did not agree on
 * checksums.
 */
public final class ControlMessage {
  /** The length of a header in bytes. */
  public static final int HEADER_BYTES = 48;

  /** The offset of the 16-bit field that belongs to the link, which may be changed by it. */
  public static final int RAIL = 4;

  static final int TYPE = 0;
  static final int FLAGS = 6;
  static final int MEMORY = 8;
  static final int OFFSET = 16;
  static final int VALUE = 24;
  static final int RECEIVED = 32;
  static final int CHECKSUM = 40;
  static final int BODY_CHECKSUM = 44;

  /** The flag of a message whose receiver is to confirm it at once. */
  static final short CONFIRM_AT_ONCE = 1;

  /** The length in bytes of the longest write that is sent inline. */
  static final int INLINE_LIMIT = 4096;

  /** The room for the longest message in bytes, a number of whole cache lines. */
  public static final int MAX_BYTES = HEADER_BYTES + INLINE_LIMIT + 16;

  /** A write whose bytes follow the header. */
  static final int INLINE = 1;

  /** A write whose bytes are the body of the message. */
  static final int DATA = 2;

  /** A signal. */
  static final int UPDATE = 3;

  /** A signal into memory that the receiving process can't store to: its 8 bytes are the body. */
  static final int UPDATE_DATA = 4;

  /** A request for an {@link #ACK} once all earlier messages are in place. */
  static final int FLUSH = 5;

  /** The acknowledgement that everything before a flush is in place. */
  static final int ACK = 6;

  /** The final message after an error, whose text follows the header. */
  static final int ERROR = 7;

  /** The final message of an orderly close: the sender writes no more. */
  static final int GOODBYE = 8;

  /**
   * Confirms what its sender has received, where no other message does so soon. It takes no place
   * in the sender's ring and is never sent again.
   */
  static final int CONFIRM = 9;

  private ControlMessage() {}
}
