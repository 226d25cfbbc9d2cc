// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/** Thrown when a message is not what the peer sent. The link is lost; the peer sends it again. */
final class CorruptMessage extends RuntimeException {
  private static final long serialVersionUID = 1L;

  CorruptMessage(String message) {
    super(message, null, false, false);
  }

  CorruptMessage(long bytes) {
    this("a message of " + bytes + " bytes has a wrong checksum");
  }
}
