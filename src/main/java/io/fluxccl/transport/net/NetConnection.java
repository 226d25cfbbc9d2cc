package io.fluxccl.transport.net;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.FlushWaiters;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.PostQueue;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * A connection over a network plugin. Posting hands over to the agent through a queue and waits for
 * nobody; all else, every call of the plugin included, happens on the agent's thread, in {@link
 * LinkWork}.
 */
final class NetConnection implements Connection {
  private static final long FULL_QUEUE_NAP_NS = 20_000;

  private final NetContext context;
  private final NetAgent agent;
  private final int remoteRank;
  private final int tag;
  private final PostQueue<NetMemoryHandle> queue = new PostQueue<>();
  private final FlushWaiters waiters = new FlushWaiters(this::flushTimeout);
  private final AtomicLong flushed = new AtomicLong();
  private final AtomicBoolean connecting = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile boolean delivered;
  private volatile boolean peerLeft;

  /** Confined to the agent, as are the methods that use it. */
  private final LinkWork work;

  /** Confined to the agent. */
  private long tickets;

  private Deadline connectDeadline;

  NetConnection(NetContext context, int remoteRank, int tag, LinkSetup setup) {
    this.context = context;
    this.agent = context.agent();
    this.remoteRank = remoteRank;
    this.tag = tag;
    this.work = new LinkWork(this, setup);
  }

  NetContext context() {
    return context;
  }

  PostQueue<NetMemoryHandle> queue() {
    return queue;
  }

  @Override
  public Transport transport() {
    return Transport.NET;
  }

  @Override
  public int remoteRank() {
    return remoteRank;
  }

  @Override
  public int tag() {
    return tag;
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
    NetMemoryHandle to = remoteHandle(target);
    OwnedMemory from = ownHandle(source);
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    beginUse("target", to, target);
    beginUse("source", from, source);
    if (size == 0 || !queue.write(to, targetOffset, from, sourceOffset, size)) {
      from.endUse();
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
    NetMemoryHandle to = remoteHandle(target);
    target.checkRange("target", targetOffset, Long.BYTES);
    if ((targetOffset & (Long.BYTES - 1)) != 0) {
      throw new InvalidUsage("targetOffset=" + targetOffset + "; give a multiple of 8");
    }
    beginUse("target", to, target);
    counter.set(newValue);
    if (!queue.update(to, targetOffset, newValue)) {
      checkWorking();
    }
    posted();
    return this;
  }

  @Override
  public long beginFlush() {
    checkWorking();
    long ticket = queue.flush();
    if (ticket == 0) {
      checkWorking();
    }
    posted();
    return ticket;
  }

  /** Acquire: pairs with the release in {@link #acknowledged}. */
  @Override
  public long flushedTicket() {
    return flushed.getAcquire();
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    long ticket;
    try {
      ticket = beginFlush();
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
    CompletableFuture<Void> waiter = waiters.add(ticket, deadline);
    agent.wake();
    // A failure in between may not have seen the waiter; one of the two sides sees the other.
    FluxCclException reason = failure.get();
    if (reason != null) {
      waiter.completeExceptionally(reason);
    }
    return waiter;
  }

  private void posted() {
    agent.wake();
    // Only who outruns the network by tens of thousands of posts is held back, until it has caught
    // up or the connection has failed.
    while (queue.isFull() && failure.get() == null && !agent.isCurrentThread()) {
      LockSupport.parkNanos(this, FULL_QUEUE_NAP_NS);
    }
  }

  private NetMemoryHandle remoteHandle(RegisteredMemory memory) {
    MemoryHandle handle = handleOf("target", memory, remoteRank);
    return handle instanceof OwnedMemory
        ? ((OwnedMemory) handle).seenByItself()
        : (NetMemoryHandle) handle;
  }

  private OwnedMemory ownHandle(RegisteredMemory memory) {
    MemoryHandle handle = handleOf("source", memory, context.rank());
    if (!(handle instanceof OwnedMemory) || !((OwnedMemory) handle).belongsTo(context)) {
      throw new InvalidUsage(
          "source "
              + memory
              + " was not registered with this communicator; write from what registerMemory gave");
    }
    return (OwnedMemory) handle;
  }

  private static MemoryHandle handleOf(String what, RegisteredMemory memory, int rank) {
    if (memory.rank() != rank) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + rank + "'s");
    }
    return memory.handle(Transport.NET);
  }

  private static void beginUse(String what, NetMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.beginUse()) {
      throw new InvalidUsage(what + " memory " + memory + " is closed");
    }
  }

  private void checkWorking() {
    if (peerLeft) {
      fail(left(), null);
    }
    FluxCclException reason = failure.get();
    if (reason != null) {
      throw reason;
    }
  }

  // Connecting.

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    if (!connecting.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          new InvalidUsage(describe() + ": connect was called before; make a new endpoint"));
    }
    // A caller that cancels gives up this end.
    connected.whenComplete((connection, error) -> giveUp());
    EndpointWire peer;
    try {
      peer = EndpointWire.decode(remoteWire, remoteRank);
    } catch (TransportFailure e) {
      end(e);
      return connected;
    }
    String own = context.plugin().name();
    if (peer.tag() != tag || !peer.network().equals(own)) {
      fail(
          "rank "
              + remoteRank
              + " connects with tag="
              + peer.tag()
              + " over the network "
              + peer.network()
              + ", this rank with tag="
              + tag
              + " over "
              + own
              + "; give all ranks the same NCCL_NET and NCCL_NET_PLUGIN",
          null);
      return connected;
    }
    agent.execute(
        () -> {
          connectDeadline = deadline;
          if (failure.get() == null) {
            work.connect(peer);
          }
        });
    return connected;
  }

  /** Ends an end that was not connected. */
  void giveUp() {
    if (!delivered) {
      end(new Aborted(context.rank(), describe() + " was given up before it was connected"));
    }
  }

  /** All links are there. */
  void established() {
    if (failure.get() == null) {
      delivered = true;
      connected.complete(this);
    }
  }

  // What the agent does and is told.

  /** Whether something was posted that the agent has not taken. Any thread. */
  boolean hasPosts() {
    return !queue.isEmpty() && !peerLeft;
  }

  /** Goes on with everything; returns how much was done. */
  int doWork() {
    return work.doWork() + waiters.advance(flushed.get());
  }

  /** Called every millisecond or so. */
  void checkDeadlines() {
    waiters.expire(flushed.get());
    if (peerLeft && (!queue.isEmpty() || !waiters.isEmpty())) {
      // Posted just before this side learned of it.
      fail(left(), null);
    }
    if (connectDeadline != null
        && !delivered
        && failure.get() == null
        && connectDeadline.expired()) {
      end(
          new Timeout(
              remoteRank,
              describe()
                  + " was not connected within "
                  + connectDeadline.timeout().toMillis()
                  + " ms: "
                  + work.missing()
                  + "; does rank "
                  + remoteRank
                  + " connect to rank "
                  + context.rank()
                  + " with the same tag?"));
    }
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
    peerLeft = true;
    if (!queue.isEmpty() || !waiters.isEmpty() || tickets != flushed.get()) {
      fail(left(), null);
    }
  }

  boolean hasPeerLeft() {
    return peerLeft;
  }

  /** That memory's registration has ended. */
  void closed(OwnedMemory memory) {
    if (work.receivesInto(memory)) {
      work.breakOff();
      fail(
          "rank " + context.rank() + " closed a memory that rank " + remoteRank + " was writing to",
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

  void fail(String message, Throwable cause) {
    if (failure.get() == null) {
      end(new TransportFailure(remoteRank, describe() + ": " + message, cause));
    }
  }

  private void end(FluxCclException reason) {
    if (failure.compareAndSet(null, reason)) {
      agent.execute(() -> afterEnd(reason));
    }
  }

  private void afterEnd(FluxCclException reason) {
    queue.close();
    dropWaiting();
    work.leave();
    connected.completeExceptionally(reason);
    waiters.fail(reason);
    failed.complete(reason);
  }

  private void dropWaiting() {
    for (int type = queue.type(); type != PostQueue.NONE; type = queue.type()) {
      NetMemoryHandle source = queue.source();
      queue.pop();
      if (source != null) {
        source.endUse();
      }
    }
  }

  /** Nothing of it is left with the plugin. */
  void ended() {
    agent.remove(this);
    context.forget(this);
  }

  @Override
  public FluxCclException failure() {
    return failure.get();
  }

  @Override
  public CompletableFuture<FluxCclException> failed() {
    return failed.copy();
  }

  @Override
  public void close() {
    end(new Aborted(context.rank(), describe() + " was closed by rank " + context.rank()));
  }

  String left() {
    return "rank " + remoteRank + " has closed its end";
  }

  private FluxCclException flushTimeout(Deadline deadline) {
    return new Timeout(
        remoteRank,
        "flush of "
            + describe()
            + " was not acknowledged by rank "
            + remoteRank
            + " within "
            + deadline.timeout().toMillis()
            + " ms; allow more time, or see what holds that rank up");
  }

  private String describe() {
    return "the NET connection to rank " + remoteRank + " (tag " + tag + ")";
  }

  @Override
  public String toString() {
    return describe();
  }
}
