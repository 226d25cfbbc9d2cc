// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * Unexpected messages: they arrived before a receive with their tag was posted. Their own memory
 * keeps them until then. Used by the comm's thread.
 */
final class UnexpectedMessages {
  /** The most bytes that are kept. */
  static final long MAX_BYTES = 256 << 20;

  private static final class UnexpectedMessage {
    final int tag;
    final ByteBuffer bytes;

    /** The arrival of the message in {@link #bytes}. */
    final TcpRequest arrival;

    /** The receive that gets the message, or null. */
    TcpRequest receive;

    UnexpectedMessage(int tag, ByteBuffer bytes, TcpRequest arrival) {
      this.tag = tag;
      this.bytes = bytes;
      this.arrival = arrival;
    }
  }

  private final TcpComm comm;
  private final List<UnexpectedMessage> messages = new ArrayList<>();
  private long kept;

  UnexpectedMessages(TcpComm comm) {
    this.comm = comm;
  }

  boolean isEmpty() {
    return messages.isEmpty();
  }

  /**
   * Begins a message; returns the request that stands for its arrival, or null if there is no room.
   */
  TcpRequest begin(int tag, long size) {
    ByteBuffer bytes = size <= MAX_BYTES - kept ? allocate((int) Math.max(1, size)) : null;
    if (bytes == null) {
      return null;
    }
    TcpRequest arrival = new TcpRequest(comm);
    arrival.post(BufferUtil.address(bytes), size, tag, 0);
    arrival.arrives(size);
    messages.add(new UnexpectedMessage(tag, bytes, arrival));
    kept += size;
    return arrival;
  }

  private static ByteBuffer allocate(int size) {
    try {
      return ByteBuffer.allocateDirect(size);
    } catch (OutOfMemoryError e) {
      return null;
    }
  }

  /** Returns the bytes of the message that a receive with a tag gets, or -1 if there is none. */
  long size(int tag) {
    UnexpectedMessage early = find(tag);
    return early == null ? -1 : early.arrival.size();
  }

  private UnexpectedMessage find(int tag) {
    for (int i = 0; i < messages.size(); i++) {
      UnexpectedMessage each = messages.get(i);
      if (each.tag == tag && each.receive == null) {
        return each;
      }
    }
    return null;
  }

  /** Gives a receive the oldest message with its tag. */
  void giveTo(TcpRequest receive) {
    UnexpectedMessage early = find(receive.tag());
    early.receive = receive;
    receive.arrives(early.arrival.size());
  }

  /** Completes the receives whose messages have arrived in full. */
  void settle() {
    for (Iterator<UnexpectedMessage> all = messages.iterator(); all.hasNext(); ) {
      UnexpectedMessage each = all.next();
      if (each.receive != null && each.arrival.isDone()) {
        UnsafeApi.copyMemory(each.arrival.address(), each.receive.address(), each.arrival.size());
        each.receive.partDone();
        kept -= each.arrival.size();
        all.remove();
      }
    }
  }

  /** Records that the rest of a message will not arrive. */
  void tears(TcpRequest arrival) {
    for (Iterator<UnexpectedMessage> all = messages.iterator(); all.hasNext(); ) {
      UnexpectedMessage each = all.next();
      if (each.arrival == arrival) {
        if (each.receive != null) {
          each.receive.tears();
        }
        all.remove();
      }
    }
  }

  /** Returns the tags of the messages that no receive gets, for messages. */
  String tags() {
    return String.join(
        ", ",
        messages.stream()
            .filter(each -> each.receive == null)
            .map(each -> Integer.toString(each.tag))
            .distinct()
            .limit(8)
            .toList());
  }
}
