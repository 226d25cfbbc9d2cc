package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.TrafficCounter;
import io.fluxccl.transport.ib.VerbsLink;
import java.io.IOException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What both ends have in common: queue pair, mailbox, requests, how they fail. Who posts or tests a
 * request drives the queue pair. A failure closes it, so that no device touches the memory of
 * requests that were told of the failure.
 */
abstract class IbNetComm implements NetComm {
  private static final long LOOK_NANOS = 1_000_000;

  private final IbNetPlugin plugin;
  private final int device;
  private final String peer;
  private final IbNetPort port;
  private final LinkState link;
  private final long timeoutNanos;
  private final IbNetRequest[] requests = new IbNetRequest[Mailbox.PLACES];

  /** NCCL registers by another thread, beside the one that sends or receives. */
  private final Set<IbNetMemory> memories = ConcurrentHashMap.newKeySet();

  /** Of the queue pair; contended only when the network is closed while it is used. */
  private final Turn turn = new Turn();

  final Mailbox mailbox;
  final SetupDescriptor.Place remote;
  final Posts posts;

  /** Those that are not done, message n in place n modulo their number; head and tail only grow. */
  final IbNetRequest[] queue = new IbNetRequest[Mailbox.PLACES];

  long head;
  long tail;

  /** The first failure; set within a turn, and read by any thread for the table. */
  private volatile FluxCclException failure;

  private final TrafficCounter traffic = new TrafficCounter();

  private int next;
  private long lookedNanos = System.nanoTime();
  private boolean closed;

  /**
   * @param link established
   * @param mailbox this end's; closed with it
   * @param remote where the peer's mailbox is
   */
  IbNetComm(
      IbNetPlugin plugin,
      int device,
      String peer,
      LinkState link,
      Mailbox mailbox,
      SetupDescriptor.Place remote) {
    this.plugin = plugin;
    this.device = device;
    this.peer = peer;
    this.link = link;
    this.mailbox = mailbox;
    this.remote = remote;
    port = plugin.port(device);
    timeoutNanos = plugin.options().timeout().toNanos();
    posts = new Posts(link.link(), plugin.options().rdma());
    for (int i = 0; i < requests.length; i++) {
      requests[i] = new IbNetRequest(this);
    }
  }

  /** Moves what can be moved, without blocking. Called within a turn. */
  abstract void progress() throws IOException;

  /** "send to" or "receive from", for messages. */
  abstract String operation();

  /** What is to be said when the link has ended, if that was to be expected; or null. */
  abstract FluxCclException knownReason();

  final IbNetRequest queued(long message) {
    return queue[(int) message & Mailbox.PLACES - 1];
  }

  /** The next request, posted, at the end of the queue. */
  final IbNetRequest post(long address, long size, int key) {
    for (int i = 0; i < requests.length; i++) {
      IbNetRequest request = requests[next++ & requests.length - 1];
      if (!request.isInFlight()) {
        request.post(address, size, key, System.nanoTime());
        queue[(int) tail++ & Mailbox.PLACES - 1] = request;
        return request;
      }
    }
    throw new InvalidUsage(
        operation() + " " + peer + ": " + requests.length + " requests are in flight, the most");
  }

  /** Begins the use of the queue pair, if it can be used; to be followed by {@link #leave}. */
  final void enter(long size) {
    if (closed) {
      throw new InvalidUsage(operation() + " " + peer + ": the connection is closed");
    }
    if (size < 0) {
      throw new InvalidUsage(operation() + " " + peer + ": size=" + size);
    }
    turn.take();
    if (failure != null) {
      FluxCclException known = failure;
      turn.giveBack();
      throw known;
    }
  }

  final void leave() {
    turn.giveBack();
  }

  /** {@link #progress}, with failures noted. Called within a turn. */
  final void tryProgress() {
    if (failure != null) {
      return;
    }
    try {
      progress();
      if (posts.failure() != 0) {
        failBy(posts.failure());
      }
    } catch (IOException e) {
      fail(refusal(e));
    }
  }

  final TransportFailure refusal(IOException e) {
    return new TransportFailure(FluxCclException.NO_RANK, text() + e.getMessage(), e);
  }

  private void failBy(int status) {
    FluxCclException known = knownReason();
    String what = text() + VerbsLink.describe(status);
    if (known == null) {
      known =
          VerbsLink.isRemoteFailure(status)
              ? new RemoteFailure(FluxCclException.NO_RANK, what)
              : new TransportFailure(FluxCclException.NO_RANK, what);
    }
    fail(known);
  }

  /** Of a test: goes on, and throws if the request never will be done. */
  final void advance(IbNetRequest request) {
    turn.take();
    try {
      tryProgress();
      if (!request.isDone()) {
        checkWait(request);
      }
    } finally {
      turn.giveBack();
    }
  }

  private void checkWait(IbNetRequest request) {
    long now = System.nanoTime();
    if (failure == null && now - lookedNanos > LOOK_NANOS) {
      lookedNanos = now;
      look();
    }
    long waited = now - request.postedNanos();
    if (timeoutNanos > 0 && waited > timeoutNanos && failure == null && !request.isDone()) {
      fail(
          new Timeout(
              FluxCclException.NO_RANK,
              String.format(
                  "%s %s on %s took longer than %.1f s; %d requests are in flight. Raise"
                      + " FLUXCCL_NET_TIMEOUT if the peer may be that late",
                  operation(), peer, port.device().name(), waited / 1e9, tail - head)));
    }
    if (failure != null && !request.isDone()) {
      request.abandon();
      throw failure;
    }
  }

  /** Whether the peer is gone, or a write has failed whose completion nobody waits for. */
  private void look() {
    port.look();
    boolean ended = link.isDisconnected();
    try {
      posts.poll();
    } catch (IOException e) {
      fail(refusal(e));
    }
    // What came before the end counts.
    tryProgress();
    if (ended && failure == null && head != tail) {
      FluxCclException known = knownReason();
      fail(
          known != null
              ? known
              : new RemoteFailure(
                  FluxCclException.NO_RANK, text() + "it disconnected; the peer is gone"));
    }
  }

  final void completed(IbNetRequest request) {
    traffic.count(request.size());
  }

  /** What the table shows of it; by any thread, as it happens to be. */
  final ConnectionState state() {
    int inFlight = 0;
    long oldest = 0;
    long now = System.nanoTime();
    for (IbNetRequest request : requests) {
      if (request.isInFlight()) {
        inFlight++;
        oldest = Math.max(oldest, now - request.postedNanos());
      }
    }
    FluxCclException failed = failure;
    return new ConnectionState(
        operation(),
        peer,
        port.device().name(),
        1,
        traffic,
        inFlight,
        oldest / 1_000_000,
        failed == null ? "" : failed.getMessage());
  }

  /** The first one counts. Called within a turn. */
  final void fail(FluxCclException reason) {
    if (failure == null) {
      failure = reason;
      port.close(link);
    }
  }

  /** For the beginning of a message. */
  final String text() {
    return operation() + " " + peer + " on " + port.device().name() + ": ";
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
      throw new InvalidUsage(plugin.name() + " reaches host memory only, not " + type);
    }
    if (closed) {
      throw new InvalidUsage("register: the connection with " + peer + " is closed");
    }
    IbNetMemory memory = new IbNetMemory(this, port, address, size);
    memories.add(memory);
    return memory;
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    throw new InvalidUsage(plugin.name() + " reaches host memory only, no dma-buf");
  }

  final void forget(IbNetMemory memory) {
    memories.remove(memory);
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      // A step that fails is no reason to keep the rest.
      Closing.all(
          () -> end(text() + "the connection was closed here"),
          () -> Closing.all(memories),
          mailbox::close,
          () -> plugin.forget(this));
    }
  }

  /** Closes from another thread, which ends the comm's use as a failure. */
  final void abort() {
    end(text() + "the network was closed");
  }

  private void end(String why) {
    turn.take();
    try {
      fail(new TransportFailure(FluxCclException.NO_RANK, why));
    } finally {
      turn.giveBack();
    }
  }
}
