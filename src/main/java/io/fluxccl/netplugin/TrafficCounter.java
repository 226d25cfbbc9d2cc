package io.fluxccl.netplugin;

import java.util.concurrent.atomic.AtomicLong;

/**
 * What one end of a connection has moved. Counted by one thread, read by any; allocates nothing.
 */
public final class TrafficCounter {
  private final AtomicLong messages = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();

  /** Counts a message that is done. By the connection's thread. */
  public void count(long size) {
    bytes.setOpaque(bytes.getPlain() + size);
    messages.setOpaque(messages.getPlain() + 1);
  }

  /** How many messages are done. */
  public long messages() {
    return messages.getOpaque();
  }

  /** How many bytes they had. */
  public long bytes() {
    return bytes.getOpaque();
  }
}
