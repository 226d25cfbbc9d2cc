package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionEnd;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.util.concurrent.ScheduledFuture;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over two sockets: this side writes on the one that it connected (acknowledgements
 * come back on it), the peer on the one accepted here. Posting hands over to the event loop through
 * a queue and never waits; all else happens on the event loop.
 */
final class EthernetConnection extends ConnectionEnd {
  /** How much may wait for the socket; only descriptions of users' memory wait, not copies. */
  static final WriteBufferWaterMark WATER_MARKS = new WriteBufferWaterMark(1 << 20, 4 << 20);

  private final EthernetContext context;
  private final byte[] token;

  private final PostQueue queue = new PostQueue();
  private final AtomicBoolean pumping = new AtomicBoolean();
  private final Runnable pump = this::pump;
  private final AtomicLong tickets = new AtomicLong();
  private final AtomicLong flushed = new AtomicLong();
  private final FlushWaiters waiters;
  private final StagedOutput staged;

  private final AtomicBoolean connecting = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private volatile boolean established;

  // Confined to the event loop.
  private InboundReader incoming;
  private Channel outgoing;
  private boolean outgoingUp;
  private FrameWriter writer;
  private boolean peerReadsNoMore;
  private ScheduledFuture<?> connectTimer;

  EthernetConnection(EthernetContext context, int remoteRank, int tag, byte[] token) {
    super(Transport.ETHERNET, context.rank(), remoteRank, tag);
    this.context = context;
    this.token = token;
    this.waiters = new FlushWaiters(context.loop(), this::flushTimeout);
    this.staged = context.staging() == null ? null : context.staging().output(this, context.pool());
  }

  @Override
  public Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    EthernetMemory to = checkedTarget(target, targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    if (!source.isLocal()) {
      throw new InvalidUsage(
          "source memory belongs to rank " + source.rank() + "; write from this rank's own");
    }
    OwnedMemory from = (OwnedMemory) open("source", source);
    checkWorking();
    if (size > 0) {
      if (from.isStaged()) {
        from.requireIn(context.memories());
        queue.staged(to.id(), targetOffset, from.id(), sourceOffset, size);
      } else {
        queue.write(to.id(), targetOffset, from.address() + sourceOffset, size);
      }
      wake();
    }
    return this;
  }

  @Override
  public Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    EthernetMemory to = checkedTarget(target, targetOffset, Long.BYTES);
    checkAligned(targetOffset);
    checkWorking();
    counter.set(newValue);
    queue.update(to.id(), targetOffset, newValue);
    wake();
    return this;
  }

  @Override
  public long beginFlush() {
    checkWorking();
    return postFlush();
  }

  /** Behind the look at whether the peer is there; it may leave in between. */
  long postFlush() {
    long ticket = tickets.incrementAndGet();
    queue.flush(ticket);
    wake();
    return ticket;
  }

  /** Acquire: pairs with the event loop's release in {@link #acknowledged}. */
  @Override
  public long flushedTicket() {
    return flushed.getAcquire();
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    try {
      checkWorking();
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
    long ticket = tickets.incrementAndGet();
    CompletableFuture<Void> waiter = waiters.add(ticket, deadline);
    queue.flush(ticket);
    wake();
    // A failure in between may not have seen the waiter; one of the two sides sees the other.
    FluxCclException reason = failure();
    if (reason != null) {
      waiter.completeExceptionally(reason);
    }
    return waiter;
  }

  @Override
  public void close() {
    end(closedHere(), true, true);
  }

  /** What proves that a socket is for this end. */
  byte[] token() {
    return token;
  }

  /** How many flushes are waited for. Called from the event loop. */
  int waiting() {
    return waiters.size();
  }

  /** Whether the kernel has all that was posted. Called from the event loop. */
  boolean isDrained() {
    return queue.isEmpty() && writer.isBetweenFrames();
  }

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    if (!connecting.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(connectedTwice());
    }
    // A caller that cancels gives up this end.
    connected.whenComplete((connection, error) -> giveUp());
    EndpointWire peer;
    try {
      peer = EndpointWire.decode(remoteWire, remoteRank());
    } catch (TransportFailure e) {
      end(e);
      return connected;
    }
    context.onLoop(() -> connect(peer, deadline));
    return connected;
  }

  /** Ends an end that was not connected. */
  void giveUp() {
    if (!established) {
      end(givenUp());
    }
  }

  private void connect(EndpointWire peer, Deadline deadline) {
    if (hasFailed()) {
      return;
    }
    connectTimer =
        context
            .loop()
            .schedule(
                () -> connectTimedOut(peer, deadline),
                deadline.remainingNanos(),
                TimeUnit.NANOSECONDS);
    OutboundReader reader = new OutboundReader(context, this, peer.token());
    ChannelFuture opening =
        new Bootstrap()
            .group(context.loop())
            .channel(context.stack().channel())
            .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, 0)
            .handler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel channel) {
                    context.initialize(channel, reader);
                  }
                })
            .connect(peer.address());
    outgoing = opening.channel();
    opening.addListener(
        opened -> {
          if (!opened.isSuccess()) {
            fail(
                String.format(
                    "rank %s can't be reached at %s; is it alive, and no firewall between?",
                    remoteRank(), peer.address()),
                opened.cause());
          }
        });
  }

  private void connectTimedOut(EndpointWire peer, Deadline deadline) {
    String missing =
        outgoingUp
            ? "it has not connected to this rank"
            : "it has not answered at " + peer.address();
    end(connectTimeout(deadline, missing));
  }

  /** The peer's socket was admitted. */
  void incomingUp(InboundReader reader) {
    incoming = reader;
    if (hasFailed()) {
      reader.close(false);
      return;
    }
    establish();
  }

  /** The peer admitted this side's socket. */
  void outgoingUp() {
    outgoingUp = true;
    establish();
  }

  private void establish() {
    if (incoming == null || !outgoingUp || established || hasFailed()) {
      return;
    }
    connectTimer.cancel(false);
    writer = new FrameWriter(queue, context, outgoing, staged);
    established = true;
    if (!connected.complete(this)) {
      // Whoever cancelled it may have taken it for established.
      end(givenUp());
    }
  }

  /** Moves what was posted to the socket. */
  void pump() {
    // A full fence that reads what wake() wrote: pairs with its getAndSet, so that a post made
    // before a wake() that found this set is seen below.
    pumping.getAndSet(false);
    FluxCclException reason = failure();
    if (reason != null) {
      waiters.fail(reason);
      return;
    }
    waiters.advance(flushed.get());
    if (peerReadsNoMore && (tickets.get() != flushed.get() || !queue.isEmpty())) {
      // Posted just before this side learned of it.
      fail(left(), null);
      return;
    }
    if (writer != null) {
      try {
        writer.pump();
      } catch (FluxCclException e) {
        stagingFailed(e);
      } catch (Throwable e) {
        // What was taken from the queue is lost.
        fail("rank " + rank() + " could not send what was posted: " + e, e);
      }
    }
  }

  /** Pumps as a task of its own, for who is called in the middle of something. */
  void pumpLater() {
    if (!pumping.getAndSet(true)) {
      context.later(pump);
    }
  }

  /** Memory that sockets can't reach could not be copied. */
  void stagingFailed(FluxCclException cause) {
    if (!hasFailed()) {
      end(
          new TransportFailure(
              rank(),
              String.format(
                  "%s: copying between pinned memory and rank %s's device failed: %s",
                  describe(), rank(), cause.getMessage()),
              cause));
    }
  }

  /** The peer has all that was posted before that ticket. */
  void acknowledged(long ticket) {
    if (ticket > tickets.get()) {
      throw new ProtocolViolation("an ACK of ticket=" + ticket + ", which was never asked for");
    }
    if (ticket > flushed.get()) {
      // Release: pairs with the acquire in flushedTicket().
      flushed.setRelease(ticket);
      waiters.advance(ticket);
    }
  }

  /** The peer says that it writes no more. */
  void peerLeaves() {
    setPeerLeft();
    if (!established) {
      fail("rank " + remoteRank() + " closed its end before this one was connected", null);
    }
  }

  /** The peer says that it reads no more; its acknowledgements are all here. */
  void peerLeft() {
    peerLeaves();
    if (!established) {
      return;
    }
    peerReadsNoMore = true;
    if (tickets.get() != flushed.get() || !isDrained()) {
      fail(left(), null);
    }
  }

  /** A socket ended without a goodbye. */
  void socketEnded(Throwable cause) {
    if (hasFailed() && outgoing != null) {
      // The peer has hung up after it was told of its mistake.
      outgoing.close();
      return;
    }
    fail(
        String.format(
            "rank %s ended a socket without a goodbye; its process may have died, or the"
                + " network"
                + " between",
            remoteRank()),
        cause);
  }

  /**
   * The peer sent what it must not, and is being told on the socket it used; the sockets stay until
   * it has hung up, lest an end without a word comes before the reason.
   */
  void peerMisbehaved(String message) {
    end(new TransportFailure(remoteRank(), describe() + ": " + message), false, false);
  }

  @Override
  public void end(FluxCclException reason) {
    end(reason, false, true);
  }

  private void end(FluxCclException reason, boolean inOrder, boolean closeSockets) {
    if (setFailure(reason)) {
      context.onLoop(() -> afterEnd(reason, inOrder, closeSockets));
    }
  }

  private void afterEnd(FluxCclException reason, boolean inOrder, boolean closeSockets) {
    context.forget(this);
    if (connectTimer != null) {
      connectTimer.cancel(false);
    }
    try {
      // What can't be closed keeps nothing else from it.
      Closing.all(
          closeSockets && outgoing != null ? () -> closeOutgoing(inOrder) : null,
          closeSockets && incoming != null ? () -> incoming.close(inOrder) : null,
          staged == null ? null : staged::close);
    } finally {
      // Flushes and the connect end with the reason.
      connected.completeExceptionally(reason);
      waiters.fail(reason);
      tellFailed();
    }
  }

  private void closeOutgoing(boolean inOrder) {
    try {
      if (inOrder && established && writer.isBetweenFrames()) {
        writer.goodbye();
      }
    } finally {
      outgoing.close();
    }
  }

  private void wake() {
    // Pairs with the getAndSet in pump().
    if (!pumping.getAndSet(true)) {
      context.onLoop(pump);
    }
  }

  private EthernetMemory checkedTarget(RegisteredMemory target, long offset, long size) {
    if (target.rank() != remoteRank()) {
      throw InvalidUsage.of(
          "target memory belongs to rank %s; %s reaches rank %s",
          target.rank(), describe(), remoteRank());
    }
    target.checkRange("target", offset, size);
    return open("target", target);
  }

  private EthernetMemory open(String what, RegisteredMemory memory) {
    EthernetMemory handle = (EthernetMemory) memory.handle(Transport.ETHERNET);
    if (handle.isClosed()) {
      throw closed(what, memory);
    }
    return handle;
  }
}
