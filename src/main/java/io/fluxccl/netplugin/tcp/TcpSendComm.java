// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.wire.RawView;
import io.fluxccl.wire.SocketTable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * The sending end of a connection. A send is done when the kernel has all its bytes. One system
 * call sends several messages, each header before its bytes. Headers and short messages are sent
 * through a small staging buffer: a copy takes less time than one more range of a system call.
 */
final class TcpSendComm extends TcpComm implements NetSendComm {
  private static final int RANGES = 24;
  private static final int RANGES_PER_MESSAGE = 3;

  /**
   * The most bytes of a range; a system call with as many takes no further message. With more,
   * later bytes evict earlier ones from the receiver's cache.
   */
  private static final long BYTES_AT_ONCE = 512 << 10;

  /** The most bytes of a range that is copied to the staging buffer. */
  private static final long SHORT = 512;

  private static final int STAGING_LENGTH = 16 * 1024;

  private static final long LOOK_NANOS = 1_000_000;

  /** The repetitions after which the peer's system counts as silent: one may be lost on the way. */
  private static final int UNANSWERED = 2;

  private final ByteBuffer headers = WireDescriptor.buffer(RING * WireDescriptor.HEADER_LENGTH);
  private final long headersAddress = BufferUtil.address(headers);
  private final ByteBuffer staging = WireDescriptor.buffer(STAGING_LENGTH);
  private final long stagingAddress = BufferUtil.address(staging);
  private final RawView[] views = new RawView[RANGES];
  private final ByteBuffer[] ranges = new ByteBuffer[RANGES];
  private final ByteBuffer told =
      WireDescriptor.buffer(WireDescriptor.ERROR_HEADER_LENGTH + WireDescriptor.MAX_ERROR_TEXT);

  /** The bytes in the staging buffer. */
  private int staged;

  /** True if the last range ends at the end of those bytes. */
  private boolean lastIsStaged;

  /** The bytes of the head message, header included, that are in the socket. */
  private long sent;

  private long lookedNanos = System.nanoTime();

  private final SendPermits permits = new SendPermits();

  /** Whether the last send was not permitted, and since when no send was. */
  private boolean refusedLast;

  private long waitsNanos;

  TcpSendComm(TcpNetPlugin plugin, int device, String peer, TcpSocket[] sockets) {
    super(plugin, device, peer, sockets, true);
    for (int i = 0; i < RANGES; i++) {
      views[i] = new RawView();
      ranges[i] = views[i].buffer();
    }
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
    TcpRequest request = send(address, size, tag, memory, 0, 0, false);
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

  @Override
  public NetRequest isend(
      long head, long headSize, NetMemory memory, long body, long bodySize, boolean more) {
    return send(head, headSize, 0, memory, body, bodySize, more);
  }

  private TcpRequest send(
      long address, long size, int tag, NetMemory memory, long body, long bodySize, boolean more) {
    checkUsable(size);
    TcpMemory.check(memory, this, address, size);
    checkFree();
    if (!hasRoomFor(bodySize > 0 ? bodySize : size)) {
      progress();
      return null;
    }
    long now = System.nanoTime();
    look(now);
    int header = (tail & (RING - 1)) * WireDescriptor.HEADER_LENGTH;
    TcpRequest request = post(address, size, tag, now);
    enqueue(request);
    begun();
    if (bodySize > 0) {
      request.body(body, bodySize);
      WireDescriptor.putBodyHeader(headers, header, (int) size, bodySize);
    } else {
      WireDescriptor.putHeader(headers, header, tag, size);
    }
    if (isSpread(request)) {
      spread(request);
    }
    if (!more) {
      progress();
    }
    return request;
  }

  @Override
  public void ready() {
    // Writes are attempted whether the socket is ready or not.
  }

  @Override
  public int interest() {
    if (failure() != null) {
      return 0;
    }
    // The socket becomes readable when the receiver sends a notice, fails or disconnects.
    boolean writes = head != tail;
    return (writes ? SelectionKey.OP_WRITE : 0)
        | (writes || refusedLast ? SelectionKey.OP_READ : 0);
  }

  @Override
  public CompletableFuture<Boolean> isAnswered() {
    String key;
    try {
      key =
          SocketTable.key(socket.channel().getLocalAddress(), socket.channel().getRemoteAddress());
    } catch (IOException e) {
      return CompletableFuture.completedFuture(false); // it is closed
    }
    return SocketTable.find(Set.of(key), BlockingTasks.EXECUTOR)
        .thenApply(rows -> rows.containsKey(key) && rows.get(key).unanswered() < UNANSWERED);
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
        int count = gather();
        long planned = 0;
        for (int i = 0; i < count; i++) {
          planned += ranges[i].remaining();
        }
        long n = count == 1 ? socket.write(ranges[0]) : socket.write(ranges, count);
        account(n);
        full = n < planned;
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

  /** Points the ranges at the next bytes to send; returns the number of ranges, 1 or more. */
  private int gather() {
    int count = 0;
    long planned = 0;
    staged = 0;
    lastIsStaged = false;
    int last = RANGES - RANGES_PER_MESSAGE;
    for (int i = head; i != tail && count <= last && planned < BYTES_AT_ONCE; i++) {
      int slot = i & (RING - 1);
      TcpRequest request = queue[slot];
      long done = i == head ? sent : 0;
      long header = headersAddress + slot * WireDescriptor.HEADER_LENGTH;
      count = range(count, header, WireDescriptor.HEADER_LENGTH, done);
      done -= WireDescriptor.HEADER_LENGTH;
      long size = sizeBehindHeader(request);
      count = range(count, request.address(), size, done);
      // The body must not follow a range that was truncated to the limit.
      if (size - Math.max(0, done) <= BYTES_AT_ONCE) {
        count = range(count, request.bodyAddress(), bodyBehindHeader(request), done - size);
      }
      planned += bytesBehindHeader(request) - Math.max(0, done);
    }
    return count;
  }

  /**
   * Points one more range at the bytes that are not sent yet, if any, or adds them to the last one;
   * returns the number of ranges.
   */
  private int range(int count, long address, long length, long done) {
    long skipped = Math.max(0, done);
    if (skipped >= length) {
      return count;
    }
    long left = length - skipped;
    boolean isShort = left <= Math.min(SHORT, STAGING_LENGTH - staged);
    if (!isShort) {
      lastIsStaged = false;
      views[count].point(address + skipped, Math.min(left, BYTES_AT_ONCE));
      return count + 1;
    }
    UnsafeApi.copyMemory(address + skipped, stagingAddress + staged, left);
    int end = count;
    if (lastIsStaged) {
      ByteBuffer last = ranges[count - 1];
      last.limit(last.limit() + (int) left);
    } else {
      views[end++].point(stagingAddress + staged, left);
    }
    staged += (int) left;
    lastIsStaged = true;
    return end;
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
    return sizeBehindHeader(request) + bodyBehindHeader(request);
  }

  private long sizeBehindHeader(TcpRequest request) {
    return request.bodySize() == 0 && isSpread(request) ? 0 : request.size();
  }

  private long bodyBehindHeader(TcpRequest request) {
    return isSpread(request) ? 0 : request.bodySize();
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
