// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts the messages and bytes that one end of a connection has moved. One thread counts, any
 * thread may read; allocates nothing.
 */
public final class TrafficCounter {
  private final AtomicLong messages = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();

  /** Counts a message that is done, of {@code size} bytes. Called by the connection's thread. */
  public void count(long size) {
    bytes.setOpaque(bytes.getPlain() + size);
    messages.setOpaque(messages.getPlain() + 1);
  }

  /** Returns the number of messages that are done. */
  public long messages() {
    return messages.getOpaque();
  }

  /** Returns the number of bytes of these messages. */
  public long bytes() {
    return bytes.getOpaque();
  }
}
