// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/** Thrown when a peer violates the protocol. It fails that peer's connection and no other. */
final class ProtocolViolation extends RuntimeException {
  private static final long serialVersionUID = 1L;

  ProtocolViolation(String message) {
    super(message, null, false, false);
  }
}
