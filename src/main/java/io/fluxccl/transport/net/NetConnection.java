package io.fluxccl.transport.net;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.PostQueue;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over a network plugin. Posting hands over to the agent through a queue and waits for
 * nobody; all else, every call of the plugin included, happens on the agent's thread, in {@link
 * LinkWork}.
 */
final class NetConnection extends AgentConnection {
  private final NetContext context;
  private final NetAgent agent;
  private final PostQueue<NetMemoryHandle> queue = new PostQueue<>();
  private final AtomicLong flushed = new AtomicLong();
  private final AtomicBoolean connecting = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private volatile boolean delivered;

  /** Confined to the agent, as are the methods that use it. */
  private final LinkWork work;

  /** Confined to the agent. */
  private long tickets;

  private Deadline connectDeadline;

  NetConnection(NetContext context, int remoteRank, int tag, LinkSetup setup) {
    super(context.transport(), context.rank(), remoteRank, tag, context.agent());
    this.context = context;
    this.agent = context.agent();
    this.work = new LinkWork(this, setup);
  }

  NetContext context() {
    return context;
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

  /** Acquire: pairs with the release in {@link #acknowledged}. */
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
    String own = context.plugin().name();
    boolean hasRails = LinkSetup.rails(context.plugin(), context.devices()) > 0;
    if (peer.tag() != tag() || !peer.network().equals(own) || hasRails != peer.rails() > 0) {
      fail(
          String.format(
              "rank %s connects with tag=%s over the network %s with %s rails, this rank with"
                  + " tag=%s over %s; give all ranks the same NCCL_NET, NCCL_NET_PLUGIN and"
                  + " FLUXCCL_NET_DEVICES",
              remoteRank(), peer.tag(), peer.network(), peer.rails(), tag(), own),
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

  /** Ends an end that was not connected. */
  void giveUp() {
    if (!delivered) {
      end(givenUp());
    }
  }

  /** All links are there. */
  void established() {
    if (!hasFailed()) {
      delivered = true;
      if (!connected.complete(this)) {
        // Whoever cancelled it may have taken it for delivered.
        end(givenUp());
      }
    }
  }

  // What the agent does and is told.

  /** Whether something was posted that the agent has not taken. Any thread. */
  boolean hasPosts() {
    return !queue.isEmpty() && !hasPeerLeft();
  }

  @Override
  protected int doWork() {
    return work.doWork() + waiters().advance(flushed.get());
  }

  @Override
  protected void checkDeadlines() {
    waiters().expire(flushed.get());
    work.checkDevice();
    if (hasPeerLeft() && (!queue.isEmpty() || !waiters().isEmpty())) {
      // Posted just before this side learned of it.
      fail(left(), null);
    }
    if (connectDeadline != null && !delivered && !hasFailed() && connectDeadline.expired()) {
      end(connectTimeout(connectDeadline, work.missing()));
    }
  }

  /** Whether the agent may sleep until a socket is ready. */
  boolean isWatched() {
    return work.isWatched();
  }

  /** The peer has all that was posted before that ticket. */
  void acknowledged(long ticket) {
    if (ticket > tickets) {
      throw new ProtocolViolation("an ACK of ticket=" + ticket + ", which was never asked for");
    }
    if (ticket > flushed.get()) {
      // Release: pairs with the acquire in flushedTicket().
      flushed.setRelease(ticket);
    }
  }

  /** A flush of that ticket is on its way. */
  void asked(long ticket) {
    tickets = ticket;
  }

  /** The peer writes no more. */
  void peerLeaves() {
    setPeerLeft();
    if (!queue.isEmpty() || !waiters().isEmpty() || tickets != flushed.get()) {
      fail(left(), null);
    }
  }

  /** This rank's device does not copy any more. */
  void deviceFailed(FluxCclException reason) {
    end(
        new TransportFailure(
            rank(),
            String.format(
                "%s: copying between pinned memory and rank %s's device failed: %s",
                describe(), rank(), reason.getMessage()),
            reason));
  }

  /** Handles the end of that memory's registration. */
  void closed(OwnedMemory memory) {
    if (work.receivesInto(memory)) {
      work.breakOff();
      fail(
          "rank " + rank() + " closed a memory that rank " + remoteRank() + " was writing to",
          null);
    }
  }

  /** Closes the links without a word, as the death of this process would. For tests. */
  void breakOff() {
    work.breakOff();
  }

  /** Nobody uses that memory any more. */
  void forget(OwnedMemory memory) {
    work.forget(memory);
  }

  // Ending.

  @Override
  protected void afterEnd(FluxCclException reason) {
    queue.close();
    try {
      // What can't be let go keeps nothing else from it.
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

  /** Nothing of it is left with the plugin. */
  void ended() {
    agent.remove(this);
    context.forget(this);
  }
}
