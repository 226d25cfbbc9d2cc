// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.transport.tcp.EndOfStream;
import io.fluxccl.transport.tcp.TcpReads;
import io.fluxccl.transport.tcp.TcpSocket;
import io.fluxccl.transport.tcp.TcpWrites;
import java.io.IOException;
import java.nio.channels.SelectionKey;

/**
 * Moves the messages of an open link through its socket: the head of each, and then its body.
 * Confined to the agent; allocates nothing.
 */
final class TcpMessages implements NetWaiter.Watched {
  /** The most messages that are not in the socket, a power of two. */
  static final int CAPACITY = 32;

  private TcpSocket in;
  private TcpSocket out;

  // The messages from taken to posted are not completely in the socket.
  private final long[] heads = new long[CAPACITY];
  private final int[] headLengths = new int[CAPACITY];
  private final long[] bodies = new long[CAPACITY];
  private final int[] bodyLengths = new int[CAPACITY];
  private long posted;
  private long taken;

  /** The bytes of the oldest message that are in the socket. */
  private long sent;

  /** Why the socket accepts no more bytes, or null; thrown once all arrived bytes are read. */
  private IOException broken;

  private final TcpWrites writes = new TcpWrites();
  private final TcpReads reads = new TcpReads();

  /** The bytes of the head that have arrived, and those that are known to belong to it. */
  private int had;

  private int wanted = ControlMessage.HEADER_BYTES;

  private long bodyAddress;
  private long bodyLeft;

  /** Whether the socket is empty until the waiter reports it as ready. */
  private boolean drained;

  /** Whether the last call that receives found too few bytes. */
  private boolean waits = true;

  private boolean watched;

  /** Moves messages through those sockets from now on. */
  void use(TcpSocket receiving, TcpSocket sending) {
    in = receiving;
    out = sending;
  }

  /** Forgets the messages of a lost link. */
  void reset() {
    posted = 0;
    taken = 0;
    sent = 0;
    broken = null;
    reads.clear();
    had = 0;
    wanted = ControlMessage.HEADER_BYTES;
    bodyLeft = 0;
    drained = false;
    waits = true;
    watched = false;
  }

  void watchedBy(NetWaiter waiter) {
    watched = true;
    waiter.add(in.channel(), this);
    if (in != out) {
      waiter.add(
          out.channel(),
          new NetWaiter.Watched() {
            @Override
            public int interest() {
              return writeInterest();
            }

            @Override
            public void ready() {
              // Writes are attempted whether the socket is ready or not.
            }
          });
    }
  }

  private int writeInterest() {
    return taken == posted || broken != null ? 0 : SelectionKey.OP_WRITE;
  }

  @Override
  public int interest() {
    return (waits ? SelectionKey.OP_READ : 0) | (in == out ? writeInterest() : 0);
  }

  @Override
  public void ready() {
    drained = false;
  }

  // Sending.

  /** As {@link Link#send}. */
  long send(long head, int headLength, long body, int bodyLength, boolean more) {
    if (posted - taken == CAPACITY) {
      return 0;
    }
    int slot = (int) posted & CAPACITY - 1;
    heads[slot] = head;
    headLengths[slot] = headLength;
    bodies[slot] = body;
    bodyLengths[slot] = bodyLength;
    posted++;
    if (!more) {
      write();
    }
    return posted;
  }

  /** As {@link Link#taken}. */
  long taken() {
    if (taken != posted) {
      write();
    }
    return taken;
  }

  private void write() {
    try {
      boolean full = broken != null;
      while (taken != posted && !full) {
        gather();
        long n = writes.write(out);
        account(n);
        full = n < writes.planned();
      }
    } catch (IOException e) {
      broken = e;
    }
  }

  /** Gathers the next bytes to send. */
  private void gather() {
    writes.clear();
    for (long i = taken; i != posted && writes.hasRoom(); i++) {
      int slot = (int) i & CAPACITY - 1;
      long done = i == taken ? sent : 0;
      writes.add(heads[slot], headLengths[slot], done);
      writes.add(bodies[slot], bodyLengths[slot], done - headLengths[slot]);
    }
  }

  private void account(long written) {
    long left = sent + written;
    while (taken != posted) {
      int slot = (int) taken & CAPACITY - 1;
      long length = headLengths[slot] + (long) bodyLengths[slot];
      if (left < length) {
        break;
      }
      left -= length;
      taken++;
    }
    sent = left;
  }

  // Receiving.

  /** As {@link Link#receiveHead}. */
  boolean receiveHead(long place, Link.HeadReader reader) throws IOException {
    waits = true;
    while (true) {
      if (had < wanted) {
        // Within a message, the rest usually arrives during the poll.
        boolean isBetween = had == 0 && !reads.hasBytes();
        if (isBetween && drained && broken == null) {
          return false;
        }
        long n = move(place + had, wanted - had);
        drained = isBetween ? watched && reads.isDrained() : drained;
        had += (int) n;
        if (n == 0) {
          return false;
        }
      } else {
        int payload = wanted > ControlMessage.HEADER_BYTES ? 0 : reader.payload(place);
        wanted += payload;
        if (payload == 0) {
          had = 0;
          wanted = ControlMessage.HEADER_BYTES;
          waits = false;
          return true;
        }
      }
    }
  }

  /** Moves bytes that have arrived; a socket that is broken fails after the last of them. */
  private long move(long address, long length) throws IOException {
    try {
      long n = reads.move(in, address, length);
      if (n > 0 || broken == null) {
        return n;
      }
    } catch (EndOfStream e) {
      if (broken == null) {
        throw e;
      }
    }
    throw broken;
  }

  /** Receives the body of the message whose head has arrived. */
  void receiveBody(long address, long length) {
    bodyAddress = address;
    bodyLeft = length;
  }

  /** As {@link Link#isReceived}. */
  boolean isBodyReceived() throws IOException {
    waits = true;
    while (bodyLeft > 0) {
      long n = move(bodyAddress, bodyLeft);
      if (n == 0) {
        return false;
      }
      bodyAddress += n;
      bodyLeft -= n;
    }
    waits = false;
    return true;
  }
}
