// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.TrafficCounter;
import io.fluxccl.transport.tcp.TcpSocket;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The common part of both ends of a connection: its sockets, requests and failure. The thread that
 * tests the requests drives stream 0, I/O threads drive the others. Used by one thread at a time,
 * except for methods that state otherwise.
 */
abstract class TcpComm implements NetComm {
  /** The most receives of a group. */
  static final int MAX_GROUP = 8;

  /** The most messages in flight: those of all groups. A power of two. */
  private static final int MAX_MESSAGES = NetPlugin.MAX_REQUESTS * MAX_GROUP;

  /**
   * The length of the rings that hold messages in flight: a power of two, larger than their number.
   */
  static final int RING = 2 * MAX_MESSAGES;

  /** The most parts that a data stream holds; a message that finds no room waits. */
  private static final int MAX_PARTS = 2 * NetPlugin.MAX_REQUESTS;

  private final TcpNetPlugin plugin;
  private final int device;
  private final String peer;
  private final long timeoutNanos;
  private final DataStream[] parts;

  /** The most requests in flight; a group is one. */
  private final int limit;

  private final TcpRequests requests = new TcpRequests(this);

  /** The socket of stream 0, which carries the messages in order. */
  final TcpSocket socket;

  /**
   * Receives that have no message yet, or sends that are not completely in the socket. Their
   * indexes {@link #head} and {@link #tail} only grow. A receive that has got its message leaves
   * null.
   */
  final TcpRequest[] queue = new TcpRequest[RING];

  int head;
  int tail;

  /** The first failure; any thread may set it. */
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();

  private final TrafficCounter traffic = new TrafficCounter();
  private int inFlight;
  private boolean stopped;
  private boolean closed;

  /**
   * Creates an end of a connection and starts its data streams.
   *
   * @param sockets all sockets of the connection, stream 0 first
   * @param sends whether this is the sending end
   */
  TcpComm(TcpNetPlugin plugin, int device, String peer, TcpSocket[] sockets, boolean sends) {
    this.plugin = plugin;
    this.device = device;
    this.peer = peer;
    timeoutNanos = plugin.options().timeout().toNanos();
    socket = sockets[0];
    limit = sends ? MAX_MESSAGES : NetPlugin.MAX_REQUESTS;
    parts = new DataStream[sockets.length - 1];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = new DataStream(this, sockets[i + 1], sends, MAX_PARTS);
      parts[i].movedBy(plugin.ioThread());
    }
  }

  /** Moves as many bytes on stream 0 as it can, without blocking. */
  abstract void progress();

  /** Returns "send to" or "receive from", for messages. */
  abstract String operation();

  /**
   * Ends the output of stream 0 if this end sends messages on it. Called once, when the comm fails
   * or is closed.
   */
  void endStream() {}

  /** Checks for an error from the peer. Called from time to time while a request waits. */
  void look(long nowNanos) {}

  /** Returns the failure for a waiting request, or null if the request is to wait on. */
  FluxCclException failure() {
    return failure.get();
  }

  /** Returns a free request, which it has posted for one message. */
  final TcpRequest post(long address, long size, int tag, long nowNanos) {
    TcpRequest request = requests.free();
    request.post(address, size, tag, nowNanos);
    return request;
  }

  /** Adds a message to the end of the queue. */
  final void enqueue(TcpRequest request) {
    queue[tail++ & (RING - 1)] = request;
  }

  /** Refuses a request if as many as allowed are in flight. */
  final void checkFree() {
    if (inFlight == limit) {
      throw NetMisuse.of("%s %s: %s requests are in flight, the most", operation(), peer, limit);
    }
  }

  /** Counts a request, or a group of them, as in flight until {@link #ended}. */
  final void begun() {
    inFlight++;
  }

  final void ended() {
    inFlight--;
  }

  final void checkUsable(long size) {
    checkOpen(size);
    FluxCclException known = failure();
    if (known != null) {
      throw known;
    }
  }

  final void checkOpen(long size) {
    if (closed) {
      throw new NetMisuse(operation() + " " + peer + ": the connection is closed");
    }
    if (size < 0) {
      throw new NetMisuse(operation() + " " + peer + ": size=" + size);
    }
  }

  /** Returns whether a message of that size is spread over the data streams. */
  final boolean isSpread(long size) {
    return parts.length > 0 && size >= WireDescriptor.SPREAD_FROM;
  }

  /** Returns whether a message of that size can be moved now, as far as streams count. */
  final boolean hasRoomFor(long size) {
    if (isSpread(size)) {
      for (DataStream part : parts) {
        if (!part.hasRoom()) {
          return false;
        }
      }
    }
    return true;
  }

  /** Posts to each data stream its part of a message. */
  final void spread(TcpRequest request) {
    request.addParts(parts.length);
    long size = request.size();
    for (int i = 0; i < parts.length; i++) {
      long from = WireDescriptor.partAt(size, parts.length, i);
      long to = WireDescriptor.partAt(size, parts.length, i + 1);
      parts[i].post(request, request.address() + from, to - from);
    }
  }

  final boolean isAnyArriving() {
    return requests.isAnyArriving();
  }

  final void completed(TcpRequest request) {
    traffic.count(request.size());
  }

  /** Fails the comm if what began at that time has exceeded the timeout. */
  final void checkTime(long sinceNanos, long nowNanos) {
    if (timeoutNanos > 0 && nowNanos - sinceNanos > timeoutNanos && failure.get() == null) {
      fail(
          new Timeout(
              FluxCclException.NO_RANK,
              Text.of(
                  "%s %s on %s took longer than %.1f s; %d requests are in flight%s. Raise"
                      + " FLUXCCL_NET_TIMEOUT if the peer may be that late",
                  operation(),
                  peer,
                  plugin.deviceName(device),
                  timeoutNanos / 1e9,
                  inFlight(),
                  waitsFor())));
    }
  }

  /** Returns what the comm waits for, for messages; empty if it is the peer. */
  String waitsFor() {
    return "";
  }

  /** Throws if a request that is not done can't complete any more, or has exceeded the timeout. */
  final void checkWait(TcpRequest request) {
    long now = System.nanoTime();
    checkTime(request.postedNanos(), now);
    look(now);
    FluxCclException known = failure();
    // An I/O thread may have moved the last part since the check in test(); a request that is done
    // does not fail.
    if (known != null && !request.isDone()) {
      fail(known); // a peer that closed becomes the failure only now
      stop();
      request.abandon();
      ended();
      throw known;
    }
  }

  /** Records a failure unless there is one already. Called by any thread. */
  final void fail(FluxCclException reason) {
    failure.compareAndSet(null, reason);
  }

  /** Fails the comm because a data stream failed. Called from the stream's I/O thread. */
  void streamFailed(IOException e) {
    fail(lost(e));
  }

  final FluxCclException lost(IOException e) {
    String reason = e instanceof ClosedChannelException ? "" : e.getMessage();
    String message = operation() + " " + peer + " on " + plugin.deviceName(device) + ": " + reason;
    // All other errors are failures of the peer or of the path to it. The system's texts can't tell
    // them apart: they depend on the locale.
    return e instanceof ClosedChannelException
        ? new TransportFailure(FluxCclException.NO_RANK, message + "closed here", e)
        : new RemoteFailure(
            FluxCclException.NO_RANK,
            message + "; the peer has ended, or the path to it has failed");
  }

  /**
   * Ends the access to the requests' memory. Stream 0 stays open, so that the peer can still read
   * the error that this end sent.
   */
  private void stop() {
    if (!stopped) {
      stopped = true;
      for (DataStream part : parts) {
        part.close();
      }
      endStream();
    }
  }

  @Override
  public final int device() {
    return device;
  }

  @Override
  public final String peer() {
    return peer;
  }

  @Override
  public final NetMemory register(long address, long size, PointerType type) {
    if (type != PointerType.HOST) {
      throw new NetMisuse("TCP reaches host memory only, not " + type);
    }
    if (closed) {
      throw new NetMisuse("register: the connection with " + peer + " is closed");
    }
    return new TcpMemory(this, address, size);
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    throw new NetMisuse("TCP reaches host memory only, no dma-buf");
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      stop();
      socket.close();
      plugin.forget(this);
    }
  }

  /** Fails the comm and closes its sockets. Called from any thread. */
  final void abort() {
    fail(
        new TransportFailure(
            FluxCclException.NO_RANK, operation() + " " + peer + ": the network was closed"));
    for (DataStream part : parts) {
      part.close();
    }
    socket.close();
  }

  /**
   * Returns the number of requests in flight. Any thread may call it; the number may be outdated.
   */
  final int inFlight() {
    return requests.inFlight();
  }

  /** Returns the comm's row for the table of connections. Called by any thread. */
  final ConnectionState state() {
    FluxCclException failed = failure.get();
    return new ConnectionState(
        operation(),
        peer,
        plugin.deviceName(device),
        Math.max(1, parts.length),
        traffic,
        inFlight(),
        requests.oldestNanos(System.nanoTime()) / 1_000_000,
        failed == null ? "" : failed.getMessage());
  }
}
