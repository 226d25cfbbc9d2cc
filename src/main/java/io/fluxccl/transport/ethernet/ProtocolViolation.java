package io.fluxccl.transport.ethernet;

/** The peer sent what it must not; its message says what. Never leaves this package. */
final class ProtocolViolation extends RuntimeException {
  private static final long serialVersionUID = 1L;

  ProtocolViolation(String message) {
    super(message, null, false, false);
  }
}
