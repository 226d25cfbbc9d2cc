package io.fluxccl.transport.net;

/** The peer sent what it must not; ends its connection, and only that. */
final class ProtocolViolation extends RuntimeException {
  private static final long serialVersionUID = 1L;

  ProtocolViolation(String message) {
    super(message, null, false, false);
  }
}
