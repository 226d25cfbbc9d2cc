package io.fluxccl.transport.ethernet;

import io.fluxccl.ErrorCode;
import org.agrona.DirectBuffer;

/**
 * Takes what {@link FrameDecoder} finds. Each method may refuse with a {@link ProtocolViolation};
 * by default all do, so that a side names only the frames it takes. Called from the event loop.
 */
interface FrameSink {
  /**
   * A payload of {@code length} bytes for that memory follows.
   *
   * @return false to be offered the frame again later, with all that follows it
   */
  default boolean onWrite(long memory, long offset, long length) {
    throw new ProtocolViolation("an unexpected WRITE frame");
  }

  /**
   * The next bytes of the payload.
   *
   * @return how many were taken; the rest is offered again later
   */
  default int onPayload(DirectBuffer buffer, int index, int length) {
    throw new ProtocolViolation("an unexpected payload");
  }

  /** Returns false to be offered the frame again later, with all that follows it. */
  default boolean onUpdate(long memory, long offset, long value) {
    throw new ProtocolViolation("an unexpected UPDATE frame");
  }

  default void onFlush(long ticket) {
    throw new ProtocolViolation("an unexpected FLUSH frame");
  }

  default void onAck(long ticket) {
    throw new ProtocolViolation("an unexpected ACK frame");
  }

  default void onError(ErrorCode code, String message) {
    throw new ProtocolViolation("an unexpected ERROR frame");
  }

  void onGoodbye();
}
