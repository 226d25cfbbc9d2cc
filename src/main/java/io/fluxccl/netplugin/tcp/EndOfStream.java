// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import java.io.IOException;

/** Thrown when the peer has closed the connection. */
final class EndOfStream extends IOException {
  private static final long serialVersionUID = 1L;

  EndOfStream() {
    super("it closed the connection");
  }
}
