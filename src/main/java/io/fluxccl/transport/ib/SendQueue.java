package io.fluxccl.transport.ib;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.PostQueue;
import io.fluxccl.transport.RdmaOptions;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.BufferUtil;

/**
 * What one connection sends: posts that wait, requests that are with the device, and how far the
 * peer has acknowledged them. Any thread posts; one thread at a time works with the queue pair,
 * whichever comes by, and none waits for another.
 *
 * <p>Why a signal never comes before its data: a reliable queue pair executes its requests in the
 * order posted, and the peer's device has placed a write before it places the next. So whoever
 * acquires the word that a signal wrote sees what was written before.
 *
 * <p>A request completes when the peer's device has acknowledged it, which stands for all before
 * it: that is a flush. Completions are asked for at the last request before a flush, at the last
 * one that waits, and every quarter of the send queue.
 */
final class SendQueue {
  private static final int POSTS_AT_A_TIME = 64;

  private static final VarHandle WORKING;

  static {
    try {
      WORKING = MethodHandles.lookup().findVarHandle(SendQueue.class, "working", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Whose queue it is. */
  interface Owner {
    /** Whether nothing is to be sent any more. Any thread. */
    boolean hasFailed();

    /** The device has refused or failed a request. On the thread that worked with it. */
    void fail(String message, Throwable cause);
  }

  private final Owner owner;
  private final RdmaOptions options;
  private final PostQueue<IbMemoryHandle> posts = new PostQueue<>();
  private final InFlight inFlight;
  private final AtomicLong flushed = new AtomicLong();

  /** 1 while a thread works with the queue pair, which all below is for: guarded by it. */
  private volatile int working;

  /** Null before there is a queue pair to work with, and again once it was closed. */
  private VerbsLink link;

  /** The values of signals that are with the device, one place a request. */
  private ByteBuffer signals;

  private long signalsAddress;
  private VerbsMemory signalsMemory;

  /** Bytes of the oldest write that are posted. */
  private long progress;

  private int unsignaled;

  SendQueue(Owner owner, RdmaOptions options) {
    this.owner = owner;
    this.options = options;
    this.inFlight = new InFlight(options.sendQueueSize());
  }

  // Posting: any thread.

  /** Posts a write of one byte or more; false, and nothing done, once closed. */
  boolean write(
      IbMemoryHandle target,
      long targetOffset,
      IbMemoryHandle source,
      long sourceOffset,
      long length) {
    return posts.write(target, targetOffset, source, sourceOffset, length);
  }

  /** Posts a signal; false, and nothing done, once closed. */
  boolean update(IbMemoryHandle target, long targetOffset, long value) {
    return posts.update(target, targetOffset, value);
  }

  /** Posts a flush and gives its ticket, greater than those before; 0 once closed. */
  long flush() {
    return posts.flush();
  }

  /** The highest ticket whose flush is done. Acquire: pairs with {@link #publishFlushed()}. */
  long flushedTicket() {
    return flushed.getAcquire();
  }

  /** Whether who posts should wait. */
  boolean isFull() {
    return posts.isFull();
  }

  /** Whether posts wait that are not with the device. */
  boolean hasWaiting() {
    return !posts.isEmpty();
  }

  /** Whether anything waits or is with the device; a moment ago, to who is not at it. */
  boolean isBusy() {
    return !inFlight.isEmpty() || !posts.isEmpty();
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
   * Begins to send. Called by the agent.
   *
   * @param established the queue pair
   * @param port registers memory for its signals
   */
  void open(VerbsLink established, VerbsPort port) throws IOException {
    int length = options.sendQueueSize() * Long.BYTES;
    ByteBuffer memory = BufferUtil.allocateDirectAligned(length, Long.BYTES);
    VerbsMemory registered = port.register(BufferUtil.address(memory), length);
    enter();
    try {
      signals = memory;
      signalsAddress = BufferUtil.address(memory);
      signalsMemory = registered;
      link = established;
    } finally {
      leave();
    }
  }

  /**
   * Takes completions and posts what waits, unless another thread is at it or there is nothing to
   * work with. Any thread; never waits, allocates nothing.
   *
   * @param poll whether to look for completions also while there is plenty of room without them
   * @return how much was done
   */
  int advance(boolean poll) {
    if (owner.hasFailed() || !tryEnter()) {
      return 0;
    }
    try {
      if (link == null) {
        return 0;
      }
      int work = poll || inFlight.isHalfFull() ? takeCompletions() : 0;
      if (!owner.hasFailed()) {
        work += postWaiting();
      }
      publishFlushed();
      return work;
    } catch (IOException | RuntimeException e) {
      owner.fail("it can't go on: " + e.getMessage(), e);
      return 1;
    } catch (Throwable e) {
      // A post may be lost: nothing that was posted behind it may go out.
      owner.fail("it can't go on: " + e, e);
      throw e;
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
      long id = link.completedId(i);
      int status = link.completedStatus(i);
      if (status != 0) {
        String reason = CompletionStatus.describe(status);
        owner.fail(inFlight.describe(id) + " failed: " + reason, null);
        return count;
      }
      inFlight.complete(id);
    }
    return count;
  }

  private int postWaiting() throws IOException {
    int count = 0;
    while (count < POSTS_AT_A_TIME) {
      int type = posts.type();
      if (type == PostQueue.NONE || type != PostQueue.FLUSH && inFlight.isFull()) {
        break;
      }
      if (type == PostQueue.WRITE) {
        postWrite();
      } else if (type == PostQueue.UPDATE) {
        postUpdate();
      } else {
        inFlight.flush(posts.targetOffset());
        posts.pop();
      }
      count++;
    }
    return count;
  }

  private void postWrite() throws IOException {
    IbMemoryHandle target = posts.target();
    IbMemoryHandle source = posts.source();
    long targetOffset = posts.targetOffset() + progress;
    long sourceOffset = posts.sourceOffset() + progress;
    long left = posts.length() - progress;
    int length =
        (int)
            Math.min(
                Math.min(left, options.maxMessage()),
                Math.min(target.untilNextKey(targetOffset), source.untilNextKey(sourceOffset)));
    boolean last = length == left;
    if (last) {
      posts.pop();
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
    IbMemoryHandle target = posts.target();
    long targetOffset = posts.targetOffset();
    long value = posts.sourceOffset();
    posts.pop();
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
    int next = last ? posts.type() : PostQueue.WRITE;
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

  // Ending: the agent.

  /** Takes all completions that there are, in however many batches. */
  void takeLast() {
    enter();
    try {
      while (link != null && !owner.hasFailed() && takeCompletions() > 0) {
        publishFlushed();
      }
    } catch (IOException | RuntimeException e) {
      owner.fail("it can't go on: " + e.getMessage(), e);
    } catch (Throwable e) {
      owner.fail("it can't go on: " + e, e);
      throw e;
    } finally {
      leave();
    }
  }

  /**
   * Sends nothing any more and closes the queue pair, if it is open and has nothing to do.
   *
   * @return whether that was so
   */
  boolean closeIfIdle() {
    enter();
    try {
      VerbsLink idle = isBusy() ? null : link;
      if (idle == null) {
        return false;
      }
      link = null;
      idle.close();
      return true;
    } finally {
      leave();
    }
  }

  /**
   * Drops all that waits and all that is with the device. Idempotent.
   *
   * @param closeLinks run while nobody works with the queue pair; the device has nothing after it
   */
  void close(Runnable closeLinks) {
    posts.close();
    enter();
    try {
      link = null;
      // What can't be closed keeps nothing else from it.
      Closing.all(closeLinks::run, inFlight::abandon, this::dropWaiting, this::closeSignals);
    } finally {
      leave();
    }
  }

  private void dropWaiting() {
    List<AutoCloseable> uses = new ArrayList<>();
    for (int type = posts.type(); type != PostQueue.NONE; type = posts.type()) {
      IbMemoryHandle target = posts.target();
      IbMemoryHandle source = posts.source();
      posts.pop();
      if (target != null) {
        uses.add(target::endUse);
      }
      if (source != null) {
        uses.add(source::endUse);
      }
    }
    Closing.all(uses);
  }

  private void closeSignals() {
    if (signalsMemory != null) {
      VerbsMemory registered = signalsMemory;
      signalsMemory = null;
      signals = null;
      registered.close();
    }
  }
}
