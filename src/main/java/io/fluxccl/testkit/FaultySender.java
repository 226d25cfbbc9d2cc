// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.net.EthernetTransport;
import io.fluxccl.transport.net.NetWaiter;
import io.fluxccl.transport.net.OwnedMemory;
import io.fluxccl.transport.net.ResumableLink;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A link that applies faults to the messages that its end sends: one direction of one connection,
 * over all sockets that carry it in turn. Used by one thread at a time.
 */
final class FaultySender implements ResumableLink {
  private static final int LONGEST_DELAY_MILLIS = 50;

  private final FaultyNetwork network;
  private final int from;
  private final int to;

  /** The faults that have not happened. */
  private final List<Fault> pending;

  private final ResumableLink link;

  // Messages that were sent over all sockets, and their bytes.
  private long messages;
  private long bytes;

  /** Keeps the memory of copies while the network may use it. */
  private final Deque<Copy> copies = new ArrayDeque<>();

  /** For each message that is not taken, the number on the link that is taken with it. */
  private final Deque<Long> ends = new ArrayDeque<>();

  private long sent;
  private long taken;

  /** The number of the last message that was sent on the link. */
  private long lastNumber;

  private boolean silent;
  private long delayedUntilNs;
  private boolean delayed;

  /** The message that the next one overtakes, or null. */
  private Copy overtaken;

  /** True if the first one of two equal messages is sent, and the other is not. */
  private boolean hasTwin;

  FaultySender(FaultyNetwork network, int from, int to, List<Fault> faults, ResumableLink link) {
    this.network = network;
    this.from = from;
    this.to = to;
    this.pending = new ArrayList<>(faults);
    this.link = link;
  }

  /** A message in memory of its own. */
  private final class Copy {
    private final ByteBuffer memory;
    private final UnsafeBuffer buffer;
    private final int headLength;
    private final int bodyLength;

    Copy(long head, int headLength, long body, int bodyLength) {
      this.headLength = headLength;
      this.bodyLength = bodyLength;
      memory = BufferUtil.allocateDirectAligned(headLength + bodyLength, 64);
      buffer = new UnsafeBuffer(memory);
      buffer.putBytes(0, new UnsafeBuffer(head, headLength), 0, headLength);
      if (bodyLength > 0) {
        buffer.putBytes(headLength, new UnsafeBuffer(body, bodyLength), 0, bodyLength);
      }
      copies.add(this);
    }

    Copy falsify(int detail) {
      int at = detail % memory.capacity();
      buffer.putByte(at, (byte) (buffer.getByte(at) ^ 1 << detail % Byte.SIZE));
      return this;
    }

    boolean send() {
      long body = bodyLength == 0 ? 0 : buffer.addressOffset() + headLength;
      return isSent(link.send(buffer.addressOffset(), headLength, null, body, bodyLength, false));
    }
  }

  private boolean isSent(long number) {
    lastNumber = Math.max(lastNumber, number);
    return number > 0;
  }

  /** Counts a message that is taken with the last one that was sent on the link. */
  private long count() {
    ends.add(lastNumber);
    return ++sent;
  }

  @Override
  public long send(
      long head, int headLength, OwnedMemory source, long body, int bodyLength, boolean more) {
    network.requireAlive(from);
    if (silent) {
      return count();
    }
    if (delayed && System.nanoTime() - delayedUntilNs < 0) {
      return 0;
    }
    delayed = false;
    boolean isConfirmation = EthernetTransport.isConfirmation(head);
    int length = headLength + bodyLength;
    Fault fault = isConfirmation ? null : due(length);
    if (fault != null) {
      return befall(fault, head, headLength, body, bodyLength);
    }
    if (!isSent(link.send(head, headLength, source, body, bodyLength, more))) {
      return 0;
    }
    if (!isConfirmation) {
      countSent(length);
      if (overtaken != null && overtaken.send()) {
        overtaken = null;
      }
    }
    return count();
  }

  /** Returns the fault of the next message, of that length; or null. */
  private Fault due(long length) {
    return pending.stream()
        .filter(fault -> fault.isDue(messages, bytes, length))
        .findFirst()
        .orElse(null);
  }

  private void countSent(long length) {
    messages++;
    bytes += length;
  }

  private long befall(Fault fault, long head, int headLength, long body, int bodyLength) {
    int length = headLength + bodyLength;
    return switch (fault.kind()) {
      case DROP -> done(fault, length);
      case DUPLICATE -> {
        hasTwin = hasTwin || new Copy(head, headLength, body, bodyLength).send();
        boolean both =
            hasTwin && isSent(link.send(head, headLength, null, body, bodyLength, false));
        hasTwin &= !both;
        yield both ? done(fault, length) : 0;
      }
      case REORDER -> {
        overtaken = new Copy(head, headLength, body, bodyLength);
        yield done(fault, length);
      }
      case CORRUPT -> {
        Copy copy = new Copy(head, headLength, body, bodyLength).falsify(fault.detail());
        yield copy.send() ? done(fault, length) : 0;
      }
      case DELAY -> {
        happened(fault);
        delayed = true;
        int millis = 1 + fault.detail() % LONGEST_DELAY_MILLIS;
        delayedUntilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        yield 0;
      }
      case SILENCE -> {
        silent = true;
        yield done(fault, length);
      }
      case CUT -> {
        happened(fault);
        throw new TransportFailure(to, "the test's fault plan cut the link");
      }
      case KILL -> {
        happened(fault);
        network.kill(from);
        throw new TransportFailure(from, "the test's fault plan killed the rank");
      }
    };
  }

  private void happened(Fault fault) {
    pending.remove(fault);
    network.happened(fault);
  }

  private long done(Fault fault, int length) {
    happened(fault);
    countSent(length);
    return count();
  }

  @Override
  public long taken() {
    long takenThere = link.taken();
    while (!ends.isEmpty() && ends.peek() <= takenThere) {
      ends.remove();
      taken++;
    }
    return taken;
  }

  /** Connects. Only the death of this rank affects it. */
  @Override
  public boolean poll(long nowNs) {
    network.requireAlive(from);
    if (!link.poll(nowNs)) {
      return false;
    }
    silent = false;
    delayed = false;
    overtaken = null;
    hasTwin = false;
    sent = 0;
    taken = 0;
    lastNumber = 0;
    ends.clear();
    copies.clear();
    return true;
  }

  @Override
  public CompletableFuture<Boolean> isAnswered() {
    return silent ? CompletableFuture.completedFuture(false) : link.isAnswered();
  }

  @Override
  public byte[] address() {
    return link.address();
  }

  @Override
  public void connect(byte[] peer) {
    link.connect(peer);
  }

  @Override
  public String missing() {
    return link.missing();
  }

  @Override
  public boolean watchedBy(NetWaiter waiter) {
    return link.watchedBy(waiter);
  }

  @Override
  public int capacity() {
    return link.capacity();
  }

  @Override
  public boolean receiveHead(long place, HeadReader reader) {
    return link.receiveHead(place, reader);
  }

  @Override
  public boolean receiveBody(int slot, long head, OwnedMemory target, long address, int length) {
    return link.receiveBody(slot, head, target, address, length);
  }

  @Override
  public boolean isReceived(int slot) {
    return link.isReceived(slot);
  }

  @Override
  public boolean isChallenged() {
    return link.isChallenged();
  }

  @Override
  public void restart(long received, long nowNs) {
    link.restart(received, nowNs);
  }

  @Override
  public long peersCount() {
    return link.peersCount();
  }

  @Override
  public FluxCclException hindrance() {
    return link.hindrance();
  }

  @Override
  public void close() {
    link.close();
  }
}
