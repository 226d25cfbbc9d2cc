package io.fluxccl.transport.ib;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.agrona.BufferUtil;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. Posting
 * hands over to the agent through a queue and waits for nobody; all else happens on the agent's
 * thread.
 *
 * <p>Why a signal never comes before its data: a reliable queue pair executes its requests in the
 * order posted, and the peer's device has placed a write before it places the next. So whoever
 * acquires the word that a signal wrote sees what was written before.
 *
 * <p>A request completes when the peer's device has acknowledged it, which stands for all before
 * it: that is a flush. Completions are asked for at the last request before a flush, at the last
 * one that waits, and every quarter of the send queue.
 */
final class IbConnection implements Connection, LinkEvents {
  private static final int POSTS_AT_A_TIME = 64;
  private static final long FULL_QUEUE_NAP_NS = 20_000;

  private static final VarHandle WORKING;

  static {
    try {
      WORKING = MethodHandles.lookup().findVarHandle(IbConnection.class, "working", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final IbContext context;
  private final IbAgent agent;
  private final int remoteRank;
  private final int tag;
  private final byte[] token;
  private final RdmaOptions options;

  private final PostQueue queue = new PostQueue();
  private final FlushWaiters waiters = new FlushWaiters(this::flushTimeout);
  private final AtomicLong flushed = new AtomicLong();
  private final AtomicBoolean connecting = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile boolean delivered;
  private volatile boolean peerLeft;

  // Confined to the agent.
  private Deadline connectDeadline;
  private VerbsLink echo;
  private boolean established;
  private boolean called;

  /** 1 while a thread works with the queue pair, which all below is for: guarded by it. */
  private volatile int working;

  /** Whether there is a queue pair to work with. Never again once it was closed. */
  private boolean open;

  private final InFlight inFlight;
  private VerbsLink link;

  /** The values of signals that are with the device, one place a request. */
  private ByteBuffer signals;

  private long signalsAddress;
  private VerbsMemory signalsMemory;

  /** Bytes of the oldest write that are posted. */
  private long progress;

  private int unsignaled;

  IbConnection(IbContext context, int remoteRank, int tag, byte[] token, RdmaOptions options) {
    this.context = context;
    this.agent = context.agent();
    this.remoteRank = remoteRank;
    this.tag = tag;
    this.token = token;
    this.options = options;
    this.inFlight = new InFlight(options.sendQueueSize());
  }

  @Override
  public Transport transport() {
    return context.transport();
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
    IbMemoryHandle to = handleOf("target", target, remoteRank);
    IbMemoryHandle from = handleOf("source", source, context.rank());
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    if (!from.isOwn()) {
      throw new InvalidUsage(
          "source " + source + " is what a peer sent; write from what registerMemory gave");
    }
    beginUse("target", to, target);
    if (!from.beginUse()) {
      to.endUse();
      throw new InvalidUsage("source " + source + " is closed");
    }
    if (size == 0 || !queue.write(to, targetOffset, from, sourceOffset, size)) {
      from.endUse();
      to.endUse();
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
    IbMemoryHandle to = handleOf("target", target, remoteRank);
    target.checkRange("target", targetOffset, Long.BYTES);
    if ((to.addressAt(targetOffset) & Long.BYTES - 1) != 0) {
      throw new InvalidUsage(
          "targetOffset=" + targetOffset + " is not at a multiple of 8 of rank " + remoteRank);
    }
    beginUse("target", to, target);
    counter.set(newValue);
    if (!queue.update(to, targetOffset, newValue)) {
      to.endUse();
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

  /** Acquire: pairs with the release in {@link #publishFlushed()}. */
  @Override
  public long flushedTicket() {
    if (isBusy()) {
      advance(true);
    }
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
    advance(false);
    if (!queue.isEmpty()) {
      // Another thread was at it, or the send queue is full. What is with the device and nobody
      // waits for, the agent finds by itself.
      agent.wake();
    }
    // Only who outruns the device by tens of thousands of posts is held back, until it has caught
    // up or the connection has failed.
    while (queue.isFull() && failure.get() == null && !agent.isCurrentThread()) {
      LockSupport.parkNanos(this, FULL_QUEUE_NAP_NS);
    }
  }

  private IbMemoryHandle handleOf(String what, RegisteredMemory memory, int rank) {
    if (memory.rank() != rank) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + rank + "'s");
    }
    MemoryHandle handle = memory.handle(context.transport());
    if (!(handle instanceof IbMemoryHandle)
        || !((IbMemoryHandle) handle).belongsTo(context)
        || ((IbMemoryHandle) handle).size() < memory.size()) {
      throw new InvalidUsage(
          what + " " + memory + " was not registered with, or received by, this communicator");
    }
    return (IbMemoryHandle) handle;
  }

  private static void beginUse(String what, IbMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.beginUse()) {
      throw new InvalidUsage(what + " " + memory + " is closed");
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

  /** What proves that a request is for this end. */
  byte[] token() {
    return token;
  }

  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    if (!connecting.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          new InvalidUsage(describe() + ": connect was called before; make a new endpoint"));
    }
    // A caller that cancels gives up this end.
    connected.whenComplete((connection, error) -> giveUp());
    IbEndpointCodec.End peer;
    try {
      peer = IbEndpointCodec.decode(remoteWire, remoteRank);
    } catch (TransportFailure e) {
      end(e);
      return connected;
    }
    if (peer.tag() != tag) {
      fail("rank " + remoteRank + " connects with tag=" + peer.tag(), null);
      return connected;
    }
    agent.execute(() -> connect(peer, deadline));
    return connected;
  }

  /** Ends an end that was not connected. */
  void giveUp() {
    if (!delivered) {
      end(new Aborted(context.rank(), describe() + " was given up before it was connected"));
    }
  }

  private void connect(IbEndpointCodec.End peer, Deadline deadline) {
    called = true;
    connectDeadline = deadline;
    if (failure.get() != null) {
      return;
    }
    // One queue pair for both ends: the lesser token calls. An end that is its own peer does both.
    if (Arrays.compareUnsigned(token, peer.token()) <= 0) {
      try {
        link = context.port().connect(peer.address(), peer.token(), this);
      } catch (IOException e) {
        fail("rank " + remoteRank + " can't be called: " + e.getMessage(), e);
      }
    }
    deliver();
  }

  @Override
  public RdmaOptions options() {
    return options;
  }

  @Override
  public void requested(VerbsLink incoming) {
    if (link == null) {
      link = incoming;
    } else {
      echo = incoming;
    }
  }

  @Override
  public void established(VerbsLink which) {
    if (which == link && failure.get() == null) {
      established = true;
      deliver();
    }
  }

  @Override
  public void failed(VerbsLink which, String what) {
    fail("rank " + remoteRank + " was not connected: " + what, null);
  }

  private void deliver() {
    if (!established || !called || delivered || failure.get() != null) {
      return;
    }
    try {
      prepareSignals();
    } catch (IOException e) {
      fail("memory for signals can't be registered: " + e.getMessage(), e);
      return;
    }
    enter();
    open = true;
    leave();
    delivered = true;
    connected.complete(this);
  }

  private void prepareSignals() throws IOException {
    int length = options.sendQueueSize() * Long.BYTES;
    signals = BufferUtil.allocateDirectAligned(length, Long.BYTES);
    signalsAddress = BufferUtil.address(signals);
    signalsMemory = context.port().register(signalsAddress, length);
  }

  /** Whether the agent should look for connection events often. Called by the agent. */
  boolean isConnecting() {
    return called && !delivered;
  }

  /** Called by the agent every half a millisecond or so. */
  void checkDeadlines() {
    waiters.expire(flushed.get());
    if (peerLeft && (!queue.isEmpty() || !waiters.isEmpty())) {
      // Posted just before this side learned of it.
      fail(left(), null);
    }
    if (isConnecting() && failure.get() == null && connectDeadline.expired()) {
      end(
          new Timeout(
              remoteRank,
              describe()
                  + " was not connected within "
                  + connectDeadline.timeout().toMillis()
                  + " ms; does rank "
                  + remoteRank
                  + " connect to rank "
                  + context.rank()
                  + " with the same tag, and does the network carry RDMA (rping)?"));
    }
  }

  // Working with the queue pair: one thread at a time.

  private boolean tryEnter() {
    // Pairs with the release in leave(): the next sees how this one left everything.
    return working == 0 && WORKING.compareAndSet(this, 0, 1);
  }

  /** Waits for who is at it, which is for a batch of posts at most. Called by the agent. */
  private void enter() {
    while (!tryEnter()) {
      Thread.onSpinWait();
    }
  }

  private void leave() {
    WORKING.setRelease(this, 0);
  }

  /**
   * Whether requests are with the device or on their way there. Any thread; who is not at it may
   * see what was so a moment ago.
   */
  boolean isBusy() {
    return delivered && failure.get() == null && (!inFlight.isEmpty() || !queue.isEmpty());
  }

  /** Whether the agent is the one to hurry. Called by the agent. */
  boolean isAwaited() {
    return !waiters.isEmpty() || !queue.isEmpty();
  }

  /** {@link #advance}, and ends flushes that are done. Called by the agent. */
  int doWork() {
    return advance(true) + waiters.advance(flushed.get());
  }

  /**
   * Takes completions and posts what waits, unless another thread is at it or there is nothing to
   * work with. Any thread; never waits, allocates nothing.
   *
   * @param poll whether to look for completions also while there is plenty of room without them
   * @return how much was done
   */
  private int advance(boolean poll) {
    if (failure.get() != null || !tryEnter()) {
      return 0;
    }
    try {
      if (!open) {
        return 0;
      }
      int work = poll || inFlight.isHalfFull() ? takeCompletions() : 0;
      if (failure.get() == null) {
        work += postWaiting();
      }
      publishFlushed();
      return work;
    } catch (IOException | RuntimeException e) {
      fail("the device refuses: " + e.getMessage(), e);
      return 1;
    } finally {
      leave();
    }
  }

  private int takeCompletions() throws IOException {
    if (inFlight.isEmpty()) {
      return 0;
    }
    int count = link.poll();
    for (int i = 0; i < count; i++) {
      int status = link.completedStatus(i);
      if (status != 0) {
        fail(
            inFlight.describe(link.completedId(i))
                + " failed: "
                + CompletionStatus.describe(status),
            null);
        return count;
      }
      inFlight.complete(link.completedId(i));
    }
    return count;
  }

  private int postWaiting() throws IOException {
    int posts = 0;
    while (posts < POSTS_AT_A_TIME) {
      int type = queue.type();
      if (type == PostQueue.NONE || type != PostQueue.FLUSH && inFlight.isFull()) {
        break;
      }
      if (type == PostQueue.WRITE) {
        postWrite();
      } else if (type == PostQueue.UPDATE) {
        postUpdate();
      } else {
        inFlight.flush(queue.targetOffset());
        queue.pop();
      }
      posts++;
    }
    return posts;
  }

  private void postWrite() throws IOException {
    IbMemoryHandle target = queue.target();
    IbMemoryHandle source = queue.source();
    long targetOffset = queue.targetOffset() + progress;
    long sourceOffset = queue.sourceOffset() + progress;
    long left = queue.length() - progress;
    int length =
        (int)
            Math.min(
                Math.min(left, options.maxMessage()),
                Math.min(target.untilNextKey(targetOffset), source.untilNextKey(sourceOffset)));
    boolean last = length == left;
    if (last) {
      queue.pop();
      progress = 0;
    } else {
      progress += length;
    }
    boolean inline =
        source.isOnHost() && length <= options.inlineThreshold() && length <= link.inlineLimit();
    long id = inFlight.nextId();
    int flags = flags(last, inline);
    inFlight.add(PostQueue.WRITE, targetOffset, length);
    if (last) {
      inFlight.holds(target, source);
    }
    link.postWrite(
        id,
        flags,
        source.addressAt(sourceOffset),
        length,
        source.localKeyAt(sourceOffset),
        target.addressAt(targetOffset),
        target.remoteKeyAt(targetOffset));
  }

  private void postUpdate() throws IOException {
    IbMemoryHandle target = queue.target();
    long targetOffset = queue.targetOffset();
    long value = queue.sourceOffset();
    queue.pop();
    // Its place is free again when the request that had it before is complete, which it is.
    long place = signalsAddress + (long) inFlight.nextSlot() * Long.BYTES;
    HostMemory.putLong(place, value);
    long id = inFlight.nextId();
    int flags = flags(true, link.inlineLimit() >= Long.BYTES);
    inFlight.add(PostQueue.UPDATE, targetOffset, Long.BYTES);
    inFlight.holds(target, null);
    link.postWrite(
        id,
        flags,
        place,
        Long.BYTES,
        signalsMemory.localKey(),
        target.addressAt(targetOffset),
        target.remoteKeyAt(targetOffset));
  }

  /** So that whenever the queue runs empty or a flush is met, the newest request will complete. */
  private int flags(boolean last, boolean inline) {
    int next = last ? queue.type() : PostQueue.WRITE;
    boolean signaled =
        next == PostQueue.NONE
            || next == PostQueue.FLUSH
            || ++unsignaled >= options.sendQueueSize() / 4;
    if (signaled) {
      unsignaled = 0;
    }
    return (signaled ? VerbsLink.SIGNALED : 0) | (inline ? VerbsLink.INLINE : 0);
  }

  private void publishFlushed() {
    long done = inFlight.doneTicket();
    if (done > flushed.get()) {
      // Release: pairs with the acquire in flushedTicket().
      flushed.setRelease(done);
    }
  }

  // Ending.

  @Override
  public void disconnected(VerbsLink which) {
    if (which == echo) {
      return;
    }
    // What the peer acknowledged before it left is done.
    doWork();
    if (failure.get() != null) {
      return;
    }
    peerLeft = true;
    enter();
    boolean idle = delivered && inFlight.isEmpty() && queue.isEmpty() && waiters.isEmpty();
    if (idle) {
      // Nothing can be posted any more; who tries learns why.
      open = false;
      link.close();
    }
    leave();
    if (!idle) {
      fail(left(), null);
    }
  }

  private String left() {
    return "rank " + remoteRank + " has closed its end, or its process is no more";
  }

  private void fail(String message, Throwable cause) {
    if (failure.get() == null) {
      end(new TransportFailure(remoteRank, describe() + ": " + message, cause));
    }
  }

  @Override
  public void close() {
    end(new Aborted(context.rank(), describe() + " was closed by rank " + context.rank()));
  }

  private void end(FluxCclException reason) {
    if (failure.compareAndSet(null, reason)) {
      agent.execute(() -> afterEnd(reason));
    }
  }

  private void afterEnd(FluxCclException reason) {
    context.forget(this);
    agent.remove(this);
    queue.close();
    enter();
    open = false;
    if (link != null) {
      link.close();
    }
    if (echo != null) {
      echo.close();
    }
    // The device has nothing of this connection any more.
    inFlight.abandon();
    dropWaiting();
    if (signalsMemory != null) {
      signalsMemory.close();
      signals = null;
    }
    leave();
    connected.completeExceptionally(reason);
    waiters.fail(reason);
    failed.complete(reason);
  }

  private void dropWaiting() {
    for (int type = queue.type(); type != PostQueue.NONE; type = queue.type()) {
      IbMemoryHandle target = queue.target();
      IbMemoryHandle source = queue.source();
      queue.pop();
      if (target != null) {
        target.endUse();
      }
      if (source != null) {
        source.endUse();
      }
    }
  }

  @Override
  public FluxCclException failure() {
    return failure.get();
  }

  @Override
  public CompletableFuture<FluxCclException> failed() {
    return failed.copy();
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
    return "the "
        + context.transport()
        + " connection to rank "
        + remoteRank
        + " (tag "
        + tag
        + ")";
  }

  @Override
  public String toString() {
    return describe();
  }
}
