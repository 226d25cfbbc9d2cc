package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetWaiter;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.TrafficCounter;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.atomic.AtomicReference;

/**
 * What both ends have in common: sockets, requests, how they fail. Stream 0 is driven by who tests
 * the requests, the others by I/O threads. Used by one thread at a time, but for what says
 * otherwise.
 */
abstract class TcpComm implements NetComm, NetWaiter.Watched {
  /** Of rings that hold what is in flight; more than there can be, a power of two. */
  static final int RING = 2 * NetPlugin.MAX_REQUESTS;

  private final TcpNetPlugin plugin;
  private final int device;
  private final String peer;
  private final long timeoutNanos;
  private final TcpRequest[] requests = new TcpRequest[NetPlugin.MAX_REQUESTS];
  private final DataStream[] parts;

  /** Stream 0. */
  final SocketChannel channel;

  /** Those that have no message yet, or not all of it in the socket; head and tail only grow. */
  final TcpRequest[] queue = new TcpRequest[RING];

  int head;
  int tail;

  /** The first failure; set by any thread. */
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();

  /** Null where this comm is polled. */
  private volatile NetWaiter waiter;

  private final TrafficCounter traffic = new TrafficCounter();
  private int next;
  private boolean stopped;
  private boolean closed;

  /**
   * @param sockets all of the connection, stream 0 first
   */
  TcpComm(TcpNetPlugin plugin, int device, String peer, SocketChannel[] sockets, boolean sends) {
    this.plugin = plugin;
    this.device = device;
    this.peer = peer;
    timeoutNanos = plugin.options().timeout().toNanos();
    channel = sockets[0];
    for (int i = 0; i < requests.length; i++) {
      requests[i] = new TcpRequest(this);
    }
    parts = new DataStream[sockets.length - 1];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = new DataStream(this, sockets[i + 1], sends, RING);
      parts[i].movedBy(plugin.ioThread());
    }
  }

  @Override
  public final boolean watchedBy(NetWaiter by) {
    waiter = by;
    by.add(channel, this);
    return true;
  }

  /** Whether a waiter says when stream 0 is ready. */
  final boolean isWatched() {
    return waiter != null;
  }

  /** An I/O thread has done the last part of a request. */
  final void requestDone() {
    NetWaiter sleeping = waiter;
    if (sleeping != null) {
      sleeping.wake();
    }
  }

  /** Moves what can be moved on stream 0, without blocking. */
  abstract void progress();

  /** "send to" or "receive from", for messages. */
  abstract String operation();

  /** Ends what this end says on stream 0, where it says anything. Called once, at its end. */
  void endStream() {}

  /** Called now and then while a request waits. */
  void look(long nowNanos) {}

  /** The failure to be given now to a request that waits, or null to go on waiting. */
  FluxCclException failure() {
    return failure.get();
  }

  /** The next request, posted, at the end of the queue. */
  final TcpRequest post(long address, long size, int tag, long nowNanos) {
    for (int i = 0; i < requests.length; i++) {
      TcpRequest request = requests[next++ & (requests.length - 1)];
      if (!request.isInFlight()) {
        request.post(address, size, tag, nowNanos);
        queue[tail++ & (RING - 1)] = request;
        return request;
      }
    }
    throw new InvalidUsage(
        operation() + " " + peer + ": " + requests.length + " requests are in flight, the most");
  }

  final void checkUsable(long size) {
    if (closed) {
      throw new InvalidUsage(operation() + " " + peer + ": the connection is closed");
    }
    if (size < 0) {
      throw new InvalidUsage(operation() + " " + peer + ": size=" + size);
    }
    FluxCclException known = failure();
    if (known != null) {
      throw known;
    }
  }

  /**
   * Whether the body of a message, or else the message, is spread over the I/O threads' streams.
   */
  final boolean isSpread(TcpRequest request) {
    return parts.length > 0 && spreadSize(request) >= WireDescriptor.SPREAD_FROM;
  }

  private static long spreadSize(TcpRequest request) {
    return request.bodySize() > 0 ? request.bodySize() : request.size();
  }

  /** Hands each stream its part of a message. */
  final void spread(TcpRequest request) {
    request.addParts(parts.length);
    long size = spreadSize(request);
    long address = request.bodySize() > 0 ? request.bodyAddress() : request.address();
    for (int i = 0; i < parts.length; i++) {
      long from = WireDescriptor.partAt(size, parts.length, i);
      long to = WireDescriptor.partAt(size, parts.length, i + 1);
      parts[i].post(request, address + from, to - from);
    }
  }

  final boolean isAnyArriving() {
    for (TcpRequest request : requests) {
      if (request.isArriving()) {
        return true;
      }
    }
    return false;
  }

  final void completed(TcpRequest request) {
    traffic.count(request.size() + request.bodySize());
  }

  /** Throws if a request that is not done never will be. */
  final void checkWait(TcpRequest request) {
    long now = System.nanoTime();
    long waited = now - request.postedNanos();
    boolean isLimited = timeoutNanos > 0 && request.place() == null;
    if (isLimited && waited > timeoutNanos && failure.get() == null) {
      fail(
          new Timeout(
              FluxCclException.NO_RANK,
              String.format(
                  "%s %s on %s took longer than %.1f s; %d requests are in flight. Raise"
                      + " FLUXCCL_NET_TIMEOUT if the peer may be that late",
                  operation(), peer, plugin.deviceName(device), waited / 1e9, inFlight())));
    }
    look(now);
    FluxCclException known = failure();
    // An I/O thread may have brought its last part since it was looked at: what has come has come.
    if (known != null && !request.isDone()) {
      fail(known); // also if it's only that the peer has closed, which now is one
      stop();
      request.abandon();
      throw known;
    }
  }

  /** For any thread; the first one counts. */
  final void fail(FluxCclException reason) {
    failure.compareAndSet(null, reason);
  }

  /** Of a data stream; called from its I/O thread. */
  final void streamFailed(IOException e) {
    fail(lost(e));
    requestDone();
  }

  final FluxCclException lost(IOException e) {
    String reason = e instanceof ClosedChannelException ? "" : e.getMessage();
    String message = operation() + " " + peer + " on " + plugin.deviceName(device) + ": " + reason;
    // All else is the way to the peer or the peer; the system's words for it vary with language.
    return e instanceof ClosedChannelException
        ? new TransportFailure(FluxCclException.NO_RANK, message + "closed here", e)
        : new RemoteFailure(FluxCclException.NO_RANK, message + "; the peer is gone");
  }

  /** Ends the use of memory. Stream 0 stays, so that the peer gets to read what it was told. */
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
      throw new InvalidUsage("TCP reaches host memory only, not " + type);
    }
    if (closed) {
      throw new InvalidUsage("register: the connection with " + peer + " is closed");
    }
    return new TcpMemory(this, address, size);
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    throw new InvalidUsage("TCP reaches host memory only, no dma-buf");
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      stop();
      Sockets.close(channel);
      plugin.forget(this);
    }
  }

  /** Closes from another thread, which ends the comm's use as a failure. */
  final void abort() {
    fail(
        new TransportFailure(
            FluxCclException.NO_RANK, operation() + " " + peer + ": the network was closed"));
    for (DataStream part : parts) {
      part.close();
    }
    Sockets.close(channel);
  }

  /** How many requests are in flight; by any thread, as it happens to be. */
  final int inFlight() {
    int count = 0;
    for (TcpRequest request : requests) {
      count += request.isInFlight() ? 1 : 0;
    }
    return count;
  }

  /** What the table shows of it; by any thread. */
  final ConnectionState state() {
    long oldest = 0;
    long now = System.nanoTime();
    for (TcpRequest request : requests) {
      if (request.isInFlight()) {
        oldest = Math.max(oldest, now - request.postedNanos());
      }
    }
    FluxCclException failed = failure.get();
    return new ConnectionState(
        operation(),
        peer,
        plugin.deviceName(device),
        Math.max(1, parts.length),
        traffic,
        inFlight(),
        oldest / 1_000_000,
        failed == null ? "" : failed.getMessage());
  }
}
