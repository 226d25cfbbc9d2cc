// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.tcp.EndOfStream;
import io.fluxccl.transport.tcp.TcpSocket;
import io.fluxccl.transport.tcp.TcpWrites;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;

/**
 * The sending end of a connection. A send is done when the kernel has all its bytes. One system
 * call sends several messages, each header before its bytes.
 */
final class TcpSendComm extends TcpComm implements NetSendComm {
  private static final long LOOK_NANOS = 1_000_000;

  private final ByteBuffer headers = WireDescriptor.buffer(RING * WireDescriptor.HEADER_LENGTH);
  private final long headersAddress = BufferUtil.address(headers);
  private final TcpWrites writes = new TcpWrites();
  private final ByteBuffer told =
      WireDescriptor.buffer(WireDescriptor.ERROR_HEADER_LENGTH + WireDescriptor.MAX_ERROR_TEXT);

  /** The bytes of the head message, header included, that are in the socket. */
  private long sent;

  private long lookedNanos = System.nanoTime();

  private final SendPermits permits = new SendPermits();

  /** Whether the last send was not permitted, and since when no send was. */
  private boolean refusedLast;

  private long waitsNanos;

  TcpSendComm(TcpNetPlugin plugin, int device, String peer, TcpSocket[] sockets) {
    super(plugin, device, peer, sockets, true);
  }

  @Override
  String operation() {
    return "send to";
  }

  @Override
  public NetRequest isend(long address, long size, int tag, NetMemory memory) {
    checkUsable(size);
    if (!permits.permits(tag) && !isPermittedNow(tag)) {
      return null;
    }
    TcpRequest request = send(address, size, tag, memory);
    if (request != null) {
      permits.sent(tag);
    }
    return request;
  }

  /** Reads the receiver's notices, and returns whether a receive with the tag is posted. */
  private boolean isPermittedNow(int tag) {
    readNotices();
    boolean permitted = permits.permits(tag);
    long now = System.nanoTime();
    if (!permitted && refusedLast) {
      checkTime(waitsNanos, now);
    }
    waitsNanos = refusedLast ? waitsNanos : now;
    refusedLast = !permitted;
    return permitted;
  }

  private TcpRequest send(long address, long size, int tag, NetMemory memory) {
    TcpMemory.check(memory, this, address, size);
    checkFree();
    if (!hasRoomFor(size)) {
      progress();
      return null;
    }
    long now = System.nanoTime();
    look(now);
    int header = (tail & (RING - 1)) * WireDescriptor.HEADER_LENGTH;
    TcpRequest request = post(address, size, tag, now);
    enqueue(request);
    begun();
    WireDescriptor.putHeader(headers, header, tag, size);
    if (isSpread(size)) {
      spread(request);
    }
    progress();
    return request;
  }

  @Override
  void progress() {
    if (failure() != null) {
      // The requests have failed: their memory belongs to the caller again.
      return;
    }
    try {
      boolean full = false;
      while (head != tail && !full) {
        gather();
        long n = writes.write(socket);
        account(n);
        full = n < writes.planned();
      }
    } catch (IOException e) {
      // An error that the peer sent before it closed is the better reason.
      readNotices();
      fail(lost(e));
    }
  }

  /**
   * Shuts the output down, so that the receiver does not wait for the rest of a truncated message.
   */
  @Override
  void endStream() {
    try {
      socket.channel().shutdownOutput();
    } catch (IOException e) {
      // The socket is closed already, which has the same effect.
    }
  }

  /** Gathers the next bytes to send. */
  private void gather() {
    writes.clear();
    for (int i = head; i != tail && writes.hasRoom(); i++) {
      int slot = i & (RING - 1);
      TcpRequest request = queue[slot];
      long done = i == head ? sent : 0;
      long header = headersAddress + slot * WireDescriptor.HEADER_LENGTH;
      writes.add(header, WireDescriptor.HEADER_LENGTH, done);
      writes.add(
          request.address(), bytesBehindHeader(request), done - WireDescriptor.HEADER_LENGTH);
    }
  }

  private void account(long written) {
    long left = written;
    while (left > 0) {
      TcpRequest request = queue[head & (RING - 1)];
      long rest = WireDescriptor.HEADER_LENGTH + bytesBehindHeader(request) - sent;
      if (left < rest) {
        sent += left;
        return;
      }
      left -= rest;
      sent = 0;
      queue[head++ & (RING - 1)] = null;
      request.partDone();
    }
  }

  private long bytesBehindHeader(TcpRequest request) {
    return isSpread(request.size()) ? 0 : request.size();
  }

  /** Checks whether the receiver has sent an error or disconnected, at most once a millisecond. */
  @Override
  void look(long nowNanos) {
    if (nowNanos - lookedNanos > LOOK_NANOS) {
      lookedNanos = nowNanos;
      readNotices();
    }
  }

  /** Reads notices from the receiver, or an error, which fails the comm. */
  private void readNotices() {
    FluxCclException reason = null;
    try {
      int n = socket.read(told);
      permits.take(told);
      while (n > 0 && told.hasRemaining()) {
        n = socket.read(told);
        permits.take(told);
      }
      if (!WireDescriptor.isPostedAt(told, 0)) {
        reason = refused();
      } else if (n < 0) {
        reason = lost(new EndOfStream());
      }
    } catch (IOException e) {
      permits.take(told);
      reason = WireDescriptor.isPostedAt(told, 0) ? lost(e) : refused();
    }
    if (reason != null) {
      fail(reason);
    }
  }

  private FluxCclException refused() {
    return new RemoteFailure(
        FluxCclException.NO_RANK,
        operation() + " " + peer() + ": it answered " + WireDescriptor.readError(told));
  }
}
