// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import java.io.IOException;

/** Thrown when the peer has closed the connection. */
public final class EndOfStream extends IOException {
  private static final long serialVersionUID = 1L;

  /** Creates the exception. */
  public EndOfStream() {
    super("it closed the connection");
  }
}
