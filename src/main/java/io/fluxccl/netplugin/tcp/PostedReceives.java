// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.transport.tcp.TcpSocket;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import org.agrona.collections.Int2ObjectHashMap;

/**
 * Counts the receives of each tag that were posted. After {@link #begin} the sender is notified of
 * the counts, and of every change, so that it sends nothing for which no receive is posted. Used by
 * the comm's thread. Allocates nothing for a tag that is known.
 */
final class PostedReceives {
  private static final int NOTICES_AT_ONCE = 64;

  private static final class Count {
    final int tag;
    int posted;
    boolean isUntold;

    Count(int tag) {
      this.tag = tag;
    }
  }

  private final Int2ObjectHashMap<Count> counts = new Int2ObjectHashMap<>();

  /** The counts that the sender does not know yet. */
  private final ArrayDeque<Count> untold = new ArrayDeque<>();

  /** Notices that are not completely in the socket; null before {@link #begin}. */
  private ByteBuffer notices;

  private Count last = new Count(0);

  PostedReceives() {
    counts.put(0, last);
  }

  /** Counts a receive. */
  void posted(int tag) {
    if (last.tag != tag) {
      last = counts.get(tag);
      if (last == null) {
        last = new Count(tag);
        counts.put(tag, last);
      }
    }
    last.posted++;
    if (notices != null) {
      tell(last);
    }
  }

  private void tell(Count count) {
    if (!count.isUntold) {
      count.isUntold = true;
      untold.add(count);
    }
  }

  /** Begins to notify the sender, unless that has begun. */
  void begin() {
    if (notices == null) {
      notices = WireDescriptor.buffer(NOTICES_AT_ONCE * WireDescriptor.POSTED_LENGTH).flip();
      counts.values().forEach(this::tell);
    }
  }

  /** Returns whether there are notices to send. */
  boolean hasNotices() {
    return notices != null && (notices.hasRemaining() || !untold.isEmpty());
  }

  /** Sends notices, as many as the socket takes. */
  void send(TcpSocket socket) throws IOException {
    while (hasNotices()) {
      if (!notices.hasRemaining()) {
        fill();
      }
      int start = notices.position();
      int n = socket.write(notices);
      // With TLS the buffer's own position is undefined.
      notices.position(start + n);
      if (notices.hasRemaining()) {
        return;
      }
    }
  }

  private void fill() {
    notices.clear();
    while (notices.hasRemaining() && !untold.isEmpty()) {
      Count count = untold.poll();
      count.isUntold = false;
      WireDescriptor.putPosted(notices, count.tag, count.posted);
    }
    notices.flip();
  }
}
