// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.PostQueue;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over a link. Posts go to the agent through a queue and do not wait for the peer. All
 * other work, including every call of the link, happens on the agent's thread, in {@link LinkWork}.
 */
final class NetConnection extends AgentConnection {
  private final NetContext context;
  private final EndpointConfig config;
  private final NetAgent agent;
  private final PostQueue<NetMemoryHandle> queue = new PostQueue<>();
  private final AtomicLong flushed = new AtomicLong();
  private final AtomicBoolean connecting = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private volatile boolean delivered;

  /**
   * Asks for the peer's end when something is posted; null if that was done, or is not to be done.
   */
  private volatile Runnable demand;

  /** Confined to the agent, as are the methods that use it. */
  private final LinkWork work;

  /** Why the link is down, while it is replaced. Written by the agent. */
  private volatile FluxCclException interruption;

  /** The last flush ticket sent to the peer. Confined to the agent. */
  private long tickets;

  private Deadline connectDeadline;

  NetConnection(NetContext context, int remoteRank, int tag, EndpointConfig config, Link link) {
    super(context.transport(), context.rank(), remoteRank, tag, context.agent());
    this.context = context;
    this.config = config;
    this.agent = context.agent();
    this.work = new LinkWork(this, link);
  }

  NetContext context() {
    return context;
  }

  EndpointConfig config() {
    return config;
  }

  PostQueue<NetMemoryHandle> queue() {
    return queue;
  }

  // Posting: any thread.

  @Override
  public Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    checkWorking();
    NetMemoryHandle to = openTarget(target);
    OwnedMemory from = handleOf("source", source, rank(), context, OwnedMemory.class);
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    enter("source", from, source);
    if (size == 0 || !queue.write(to, targetOffset, from, sourceOffset, size)) {
      from.release();
      checkWorking();
      return this;
    }
    posted();
    return this;
  }

  @Override
  public Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    checkWorking();
    NetMemoryHandle to = openTarget(target);
    target.checkRange("target", targetOffset, Long.BYTES);
    checkAligned(targetOffset);
    counter.set(newValue);
    if (!queue.update(to, targetOffset, newValue)) {
      checkWorking();
    }
    posted();
    return this;
  }

  @Override
  protected long postFlush() {
    return queue.flush();
  }

  /**
   * Returns the highest ticket whose flush is done. Acquire: pairs with the release in {@link
   * #acknowledged}.
   */
  @Override
  public long flushedTicket() {
    return flushed.getAcquire();
  }

  @Override
  protected void posted() {
    agent.wake();
    awaitRoom();
  }

  @Override
  protected boolean isFull() {
    return queue.isFull();
  }

  private NetMemoryHandle openTarget(RegisteredMemory memory) {
    NetMemoryHandle handle =
        handleOf("target", memory, remoteRank(), context, NetMemoryHandle.class);
    if (handle.isClosed()) {
      throw closed("target", memory);
    }
    return handle;
  }

  // Connecting.

  /** Keeps posts until the two ends are connected, and asks for that at the first one. */
  void onDemand(Runnable action) {
    demand = action;
  }

  @Override
  public boolean isInUse() {
    return demand == null;
  }

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    if (!connecting.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(connectedTwice());
    }
    demand = null;
    // A caller that cancels the future closes this end.
    connected.whenComplete((connection, error) -> giveUp());
    EndpointWire peer;
    try {
      peer = EndpointWire.decode(remoteWire, remoteRank());
    } catch (TransportFailure e) {
      end(e);
      return connected;
    }
    String own = context.network().name();
    if (peer.tag() != tag() || !peer.network().equals(own)) {
      fail(
          Text.of(
              "rank %s connects with tag=%s over the network %s, this rank with tag=%s over %s;"
                  + " give all ranks the same NCCL_NET and NCCL_NET_PLUGIN",
              remoteRank(), peer.tag(), peer.network(), tag(), own),
          null);
      return connected;
    }
    agent.execute(
        () -> {
          connectDeadline = deadline;
          if (!hasFailed()) {
            begin(peer);
          }
        });
    return connected;
  }

  private void begin(EndpointWire peer) {
    try {
      work.connect(peer);
    } catch (Throwable e) {
      failInService(e);
    }
  }

  /** Closes this end unless it was connected. */
  void giveUp() {
    if (!delivered) {
      end(givenUp());
    }
  }

  /** Delivers the connection to the caller of connect. Called when all links are open. */
  void established() {
    if (!hasFailed()) {
      delivered = true;
      if (!connected.complete(this)) {
        // A caller that cancelled may have seen it as delivered and not closed it.
        end(givenUp());
      }
    }
  }

  // Serving: called by the agent.

  /** Returns whether there are posts that the agent should take, or ask for the peer's end for. */
  boolean hasPosts() {
    return !queue.isEmpty() && !hasPeerLeft() && (work.takesPosts() || demand != null);
  }

  @Override
  protected int doWork() {
    Runnable asks = demand;
    if (asks != null && !queue.isEmpty()) {
      demand = null;
      asks.run();
    }
    return work.doWork() + waiters().advance(flushed.get());
  }

  @Override
  protected void checkDeadlines() {
    waiters().expire(flushed.get());
    work.checkDevice();
    work.checkLink();
    if (hasPeerLeft() && (!queue.isEmpty() || !waiters().isEmpty())) {
      // They were posted just before this side learned that the peer has left.
      fail(left(), null);
    }
    if (connectDeadline != null && !delivered && !hasFailed() && connectDeadline.expired()) {
      end(connectTimeout(connectDeadline, work.missing()));
    }
  }

  /** Returns whether the agent may sleep until a socket is ready. */
  boolean isWatched() {
    return work.isWatched();
  }

  /** Returns whether the links are being opened. */
  boolean isConnecting() {
    return work.isConnecting();
  }

  /** Records that the peer has received everything posted before the flush of that ticket. */
  void acknowledged(long ticket) {
    if (ticket > tickets) {
      throw new ProtocolViolation("an ACK of ticket=" + ticket + ", which was never asked for");
    }
    if (ticket > flushed.get()) {
      // Release: pairs with the acquire in flushedTicket().
      flushed.setRelease(ticket);
    }
  }

  /** Records that the flush of that ticket is in flight. */
  void asked(long ticket) {
    tickets = ticket;
  }

  /** Records that the peer writes no more. Fails the connection if posts or flushes are pending. */
  void peerLeaves() {
    setPeerLeft();
    if (!queue.isEmpty() || !waiters().isEmpty() || tickets != flushed.get()) {
      fail(left(), null);
    }
  }

  /** Fails the connection because this rank's device no longer copies. */
  void deviceFailed(FluxCclException reason) {
    end(
        new TransportFailure(
            rank(),
            Text.of(
                "%s: copying between pinned memory and rank %s's device failed: %s",
                describe(), rank(), reason.getMessage()),
            reason));
  }

  /** Fails the connection if the peer is writing to that memory, whose registration has ended. */
  void closed(OwnedMemory memory) {
    if (work.receivesInto(memory)) {
      work.breakOff();
      fail(
          "rank " + rank() + " closed a memory that rank " + remoteRank() + " was writing to",
          null);
    }
  }

  /** Closes the links without a final message, as the death of this process would. For tests. */
  void breakOff() {
    work.breakOff();
  }

  /** Records that the link is down, or works again. */
  void interrupted(FluxCclException reason) {
    interruption = reason;
  }

  @Override
  public FluxCclException interruption() {
    return interruption;
  }

  /** Returns how many times the link was lost and replaced, or is being replaced. For tests. */
  long resumptions() {
    return work.resumptions();
  }

  /** Deregisters a memory that has no users any more. */
  void forget(OwnedMemory memory) {
    work.forget(memory);
  }

  // Failure and close.

  @Override
  protected void afterEnd(FluxCclException reason) {
    queue.close();
    try {
      // Runs both steps even if one fails.
      Closing.all(this::dropWaiting, work::leave);
    } finally {
      connected.completeExceptionally(reason);
    }
  }

  private void dropWaiting() {
    List<AutoCloseable> uses = new ArrayList<>();
    for (int type = queue.type(); type != PostQueue.NONE; type = queue.type()) {
      NetMemoryHandle source = queue.source();
      queue.pop();
      if (source != null) {
        uses.add(source::release);
      }
    }
    Closing.all(uses);
  }

  /** Removes the connection from the agent and the context. Called when its links are closed. */
  void ended() {
    agent.remove(this);
    context.forget(this);
  }
}
