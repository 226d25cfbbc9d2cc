// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import java.nio.ByteBuffer;
import org.agrona.collections.Int2ObjectHashMap;

/**
 * Decides whether a message may be sent. At first all may. After the receiver's first notice
 * ({@link PostedReceives}), a message may be sent only if a receive with its tag is posted: other
 * messages would block those that the receiver waits for. Used by the comm's thread. Allocates
 * nothing for a tag that is known.
 */
final class SendPermits {
  private static final class Count {
    final int tag;

    // Both modulo 2^32.
    int sent;
    int posted;

    Count(int tag) {
      this.tag = tag;
    }
  }

  private final Int2ObjectHashMap<Count> counts = new Int2ObjectHashMap<>();
  private Count last = new Count(0);
  private boolean isLimited;

  SendPermits() {
    counts.put(0, last);
  }

  /** Returns whether the receiver has begun to send notices. */
  boolean isLimited() {
    return isLimited;
  }

  /** Returns whether a message with a tag may be sent now. */
  boolean permits(int tag) {
    if (!isLimited) {
      return true;
    }
    Count count = of(tag);
    return count.sent - count.posted < 0;
  }

  /** Counts a message that is sent. */
  void sent(int tag) {
    of(tag).sent++;
  }

  private Count of(int tag) {
    if (last.tag != tag) {
      last = counts.get(tag);
      if (last == null) {
        last = new Count(tag);
        counts.put(tag, last);
      }
    }
    return last;
  }

  /** Takes the complete notices at the beginning of what was read, and removes them. */
  void take(ByteBuffer read) {
    int at = 0;
    while (read.position() - at >= WireDescriptor.POSTED_LENGTH
        && WireDescriptor.isPostedAt(read, at)) {
      isLimited = true;
      of(WireDescriptor.postedTagAt(read, at)).posted = WireDescriptor.postedCountAt(read, at);
      at += WireDescriptor.POSTED_LENGTH;
    }
    if (at > 0) {
      read.flip().position(at);
      read.compact();
    }
  }
}
