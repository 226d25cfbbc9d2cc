// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.NetWaiter;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.net.EthernetTransport;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/** A sending end that applies its link's faults to messages. Used by one thread at a time. */
final class FaultySender implements NetSendComm {
  private static final int LONGEST_DELAY_MILLIS = 50;

  /** The request of a message that the network has taken, and lost. */
  private static final NetRequest LOST = new Requests();

  private final FaultyNetwork network;
  private final FaultyLink link;
  private final NetSendComm comm;

  /** Keeps the memory of copies while the network may use it. */
  private final Deque<Copy> copies = new ArrayDeque<>();

  private boolean silent;
  private long delayedUntilNs;
  private boolean delayed;

  /** The message that the next one overtakes, or null. */
  private Copy overtaken;

  /** The first one of two equal messages, of which the other is not sent yet; or null. */
  private NetRequest twin;

  FaultySender(FaultyNetwork network, FaultyLink link, NetSendComm comm) {
    this.network = network;
    this.link = link;
    this.comm = comm;
  }

  /** Several requests of which the last must be done. */
  private static final class Requests implements NetRequest {
    private final Deque<NetRequest> rest;

    Requests(NetRequest... requests) {
      rest = new ArrayDeque<>(List.of(requests));
    }

    @Override
    public boolean test() {
      while (!rest.isEmpty() && rest.peek().test()) {
        rest.remove();
      }
      return rest.isEmpty();
    }

    @Override
    public long size(int index) {
      return 0;
    }
  }

  /** A message in memory of its own. */
  private final class Copy {
    private final ByteBuffer memory;
    private final UnsafeBuffer buffer;
    private final int headSize;
    private final int bodySize;
    private final NetMemory registration;

    Copy(long head, long headSize, long body, long bodySize) {
      this.headSize = (int) headSize;
      this.bodySize = (int) bodySize;
      memory = BufferUtil.allocateDirectAligned(this.headSize + this.bodySize, 64);
      buffer = new UnsafeBuffer(memory);
      buffer.putBytes(0, new UnsafeBuffer(head, this.headSize), 0, this.headSize);
      if (bodySize > 0) {
        buffer.putBytes(this.headSize, new UnsafeBuffer(body, this.bodySize), 0, this.bodySize);
      }
      registration = comm.register(buffer.addressOffset(), this.headSize, PointerType.HOST);
      copies.add(this);
    }

    Copy falsify(int detail) {
      int at = detail % memory.capacity();
      buffer.putByte(at, (byte) (buffer.getByte(at) ^ 1 << detail % Byte.SIZE));
      return this;
    }

    NetRequest send() {
      long body = bodySize == 0 ? 0 : buffer.addressOffset() + headSize;
      return comm.isend(buffer.addressOffset(), headSize, registration, body, bodySize, false);
    }
  }

  @Override
  public NetRequest isend(
      long head, long headSize, NetMemory memory, long body, long bodySize, boolean more) {
    network.requireAlive(link.from());
    if (silent) {
      return LOST;
    }
    if (delayed && System.nanoTime() - delayedUntilNs < 0) {
      return null;
    }
    delayed = false;
    if (EthernetTransport.isConfirmation(head)) {
      return comm.isend(head, headSize, memory, body, bodySize, more);
    }
    long length = headSize + bodySize;
    Fault fault = link.due(length);
    return fault == null
        ? sent(length, comm.isend(head, headSize, memory, body, bodySize, more))
        : befall(fault, head, headSize, memory, body, bodySize);
  }

  @Override
  public CompletableFuture<Boolean> isAnswered() {
    return silent ? CompletableFuture.completedFuture(false) : comm.isAnswered();
  }

  private NetRequest befall(
      Fault fault, long head, long headSize, NetMemory memory, long body, long bodySize) {
    long length = headSize + bodySize;
    return switch (fault.kind()) {
      case DROP -> lost(fault, length);
      case DUPLICATE -> {
        twin = twin == null ? new Copy(head, headSize, body, bodySize).send() : twin;
        NetRequest second =
            twin == null ? null : comm.isend(head, headSize, memory, body, bodySize, false);
        yield second == null ? null : done(fault, length, new Requests(twin, second));
      }
      case REORDER -> {
        Copy late = new Copy(head, headSize, body, bodySize);
        NetRequest lost = lost(fault, length);
        overtaken = late;
        yield lost;
      }
      case CORRUPT ->
          done(
              fault,
              length,
              new Copy(head, headSize, body, bodySize).falsify(fault.detail()).send());
      case DELAY -> {
        happened(fault);
        delayed = true;
        int millis = 1 + fault.detail() % LONGEST_DELAY_MILLIS;
        delayedUntilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        yield null;
      }
      case SILENCE -> {
        silent = true;
        yield lost(fault, length);
      }
      case CUT -> {
        happened(fault);
        comm.close();
        throw new TransportFailure(link.to(), "the test's fault plan cut the link");
      }
      case KILL -> {
        happened(fault);
        network.kill(link.from());
        throw new TransportFailure(link.from(), "the test's fault plan killed the rank");
      }
    };
  }

  private void happened(Fault fault) {
    link.happened(fault);
    network.happened(fault);
  }

  private NetRequest lost(Fault fault, long length) {
    happened(fault);
    link.sent(length);
    return LOST;
  }

  /** Records a fault if the network has taken its message. */
  private NetRequest done(Fault fault, long length, NetRequest request) {
    if (request != null) {
      happened(fault);
      link.sent(length);
      twin = null;
    }
    return request;
  }

  /** Sends the overtaken message, if there is one, after a message that was sent. */
  private NetRequest sent(long length, NetRequest request) {
    if (request == null) {
      return null;
    }
    link.sent(length);
    NetRequest late = overtaken == null ? null : overtaken.send();
    if (late == null) {
      return request;
    }
    overtaken = null;
    return new Requests(request, late);
  }

  /** Sends a message that opens a link. Only the death of this rank affects it. */
  @Override
  public NetRequest isend(long address, long size, int tag, NetMemory memory) {
    network.requireAlive(link.from());
    return comm.isend(address, size, tag, memory);
  }

  @Override
  public int device() {
    return comm.device();
  }

  @Override
  public String peer() {
    return comm.peer();
  }

  @Override
  public NetMemory register(long address, long size, PointerType type) {
    return comm.register(address, size, type);
  }

  @Override
  public NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    return comm.registerDmaBuf(address, size, type, offset, fileDescriptor);
  }

  @Override
  public boolean watchedBy(NetWaiter waiter) {
    return comm.watchedBy(waiter);
  }

  @Override
  public void close() {
    comm.close();
  }
}
