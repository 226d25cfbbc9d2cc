// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/** Thrown when a peer violates the protocol. It fails that peer's connection and no other. */
public final class ProtocolViolation extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** Creates an exception with a description of the violation. */
  public ProtocolViolation(String message) {
    super(message, null, false, false);
  }
}
