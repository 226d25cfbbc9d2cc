// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.PostQueue;
import io.fluxccl.transport.RdmaOptions;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends the posts of one connection. It holds the waiting posts, the requests in flight, and the
 * last flush that the peer has acknowledged. Any thread may post. The first thread that enters uses
 * the queue pair; other threads do not wait for it.
 *
 * <p>A signal never arrives before its data: a reliable queue pair executes its requests in the
 * order posted, and the peer's device has placed a write before it places the next. So a thread
 * that acquires the word of a signal sees all earlier writes.
 *
 * <p>A request completes when the peer's device has acknowledged it and all requests before it, so
 * its completion also completes a flush. Three kinds of requests ask for a completion: the last
 * before a flush, the last that waits, and one in every quarter of the send queue.
 *
 * <p>Each end has a state word. The other end writes to it when it is connected, and later when it
 * leaves.
 */
final class SendQueue {
  private static final Logger LOGGER = LoggerFactory.getLogger(SendQueue.class);
  private static final int POSTS_AT_A_TIME = 64;

  private final IbConnection owner;
  private final RdmaOptions options;
  private final PostQueue<IbMemoryHandle> posts = new PostQueue<>();
  private final InFlight inFlight;
  private final AtomicLong flushed = new AtomicLong();

  /** True while a thread uses the queue pair; guards all fields below. */
  private final AtomicBoolean working = new AtomicBoolean();

  private final Verbs.Link link;

  private final ControlWords words;

  /** True from when the peer has acknowledged the hello until this end is closed. */
  private boolean open;

  /** True once the device has refused or failed a request. */
  private boolean broken;

  /** The number of bytes of the oldest write that were posted to the device. */
  private long progress;

  private int unsignaled;

  /**
   * Creates a queue that is not connected.
   *
   * @param link the queue pair, which this queue closes
   * @param port registers memory for the values of signals
   */
  SendQueue(IbConnection owner, RdmaOptions options, Verbs.Link link, Verbs.Port port)
      throws IOException {
    this.owner = owner;
    this.options = options;
    this.inFlight = new InFlight(options.sendQueueSize());
    this.link = link;
    this.words = new ControlWords(port, options.sendQueueSize());
  }

  /** Returns the words of this end. */
  ControlWords words() {
    return words;
  }

  // Posting: any thread.

  /** Posts a write of one byte or more. Returns false if the queue is closed. */
  boolean write(
      IbMemoryHandle target,
      long targetOffset,
      IbMemoryHandle source,
      long sourceOffset,
      long length) {
    return posts.write(target, targetOffset, source, sourceOffset, length);
  }

  /** Posts a signal. Returns false if the queue is closed. */
  boolean update(IbMemoryHandle target, long targetOffset, long value) {
    return posts.update(target, targetOffset, value);
  }

  /**
   * Posts a flush and returns its ticket, greater than all before. Returns 0 if the queue is
   * closed.
   */
  long flush() {
    return posts.flush();
  }

  /** Returns the highest ticket whose flush is done. Acquire: pairs with publishFlushed(). */
  long flushedTicket() {
    return flushed.getAcquire();
  }

  /** Returns whether posters should wait. */
  boolean isFull() {
    return posts.isFull();
  }

  /** Returns whether there are posts that the device has not received. */
  boolean hasWaiting() {
    return !posts.isEmpty();
  }

  /** Returns whether any post waits or is in flight. The value may be outdated on other threads. */
  boolean isBusy() {
    return !inFlight.isEmpty() || !posts.isEmpty();
  }

  // Using the queue pair: one thread at a time.

  private boolean tryEnter() {
    // Pairs with the release in leave(): this thread sees all fields as the last one left them.
    return !working.get() && working.compareAndSet(false, true);
  }

  /**
   * Enters once no thread uses the queue pair; waits for one batch of posts at most. Called by the
   * agent.
   */
  private void enter() {
    while (!tryEnter()) {
      Thread.onSpinWait();
    }
  }

  private void leave() {
    working.setRelease(false);
  }

  // Connecting: called by the agent.

  /** Connects the queue pair, which then executes the peer's requests. */
  void connect(Verbs.QueuePairPath path, IbEndpoint.End peer) throws IOException {
    words.setPeer(peer);
    link.connect(path);
  }

  /** Sends the hello to the peer, whose queue pair is connected. */
  void postHello() throws IOException {
    enter();
    try {
      words.postState(link, inFlight, ControlWords.HELLO);
    } finally {
      leave();
    }
  }

  /** Opens this queue for posts if the peer has acknowledged the hello; returns whether it did. */
  boolean tryOpen() throws IOException {
    enter();
    try {
      takeCompletions();
      open = !broken && inFlight.isEmpty();
      return open;
    } finally {
      leave();
    }
  }

  /**
   * Takes completions and posts requests, unless another thread does so or the queue pair is not
   * connected. Any thread; never waits, allocates nothing.
   *
   * @param poll whether to take completions even if the send queue has plenty of room
   * @return the work count
   */
  int advance(boolean poll) {
    if (owner.hasFailed() || !tryEnter()) {
      return 0;
    }
    try {
      if (!open) {
        return 0;
      }
      int work = poll || inFlight.isHalfFull() ? takeCompletions() : 0;
      if (!owner.hasFailed()) {
        work += postWaiting();
      }
      publishFlushed();
      return work;
    } catch (Throwable e) {
      fail(e);
      return 1;
    } finally {
      leave();
    }
  }

  /** Fails the connection. A post may be lost, so no later post may be sent. */
  private void fail(Throwable error) {
    broken = true;
    boolean expected = error instanceof IOException || error instanceof RuntimeException;
    owner.fail("it can't continue: " + (expected ? error.getMessage() : error), error);
    if (error instanceof Error) {
      throw (Error) error;
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
        broken = true;
        String reason = CompletionStatus.describe(status);
        owner.failed(open ? inFlight.describe(id) : null, reason);
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
    long sameKeys = Math.min(target.untilNextKey(targetOffset), source.untilNextKey(sourceOffset));
    int length = (int) Math.min(Math.min(left, options.maxMessage()), sameKeys);
    boolean last = length == left;
    if (last) {
      posts.pop();
      progress = 0;
    } else {
      progress += length;
    }
    boolean inline = source.isOnHost() && length <= link.inlineLimit();
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
    long word = words.signal(inFlight);
    HostMemory.putLong(word, value);
    long id = inFlight.nextId();
    int flags = flags(true, link.inlineLimit() >= Long.BYTES);
    inFlight.add(PostQueue.UPDATE, targetOffset, Long.BYTES);
    inFlight.holds(target, null);
    link.postWrite(
        id,
        flags,
        word,
        Long.BYTES,
        words.localKey(),
        target.addressAt(targetOffset),
        target.remoteKeyAt(targetOffset));
  }

  /**
   * Returns the flags of the next request. It asks for a completion if no post or a flush follows,
   * or if a quarter of the send queue has asked for none.
   */
  private int flags(boolean last, boolean inline) {
    int next = last ? posts.type() : PostQueue.WRITE;
    boolean signaled =
        next == PostQueue.NONE
            || next == PostQueue.FLUSH
            || ++unsignaled >= options.sendQueueSize() / 4;
    if (signaled) {
      unsignaled = 0;
    }
    return (signaled ? Verbs.Link.SIGNALED : 0) | (inline ? Verbs.Link.INLINE : 0);
  }

  private void publishFlushed() {
    long done = inFlight.doneTicket();
    if (done > flushed.get()) {
      // Release: pairs with the acquire in flushedTicket().
      flushed.setRelease(done);
    }
  }

  // Failure and close: called by the agent.

  /** Takes all available completions, in as many batches as needed. */
  void takeLast() {
    enter();
    try {
      while (open && !owner.hasFailed() && takeCompletions() > 0) {
        publishFlushed();
      }
    } catch (Throwable e) {
      fail(e);
    } finally {
      leave();
    }
  }

  /**
   * Drops all posts and all requests, and closes the queue pair. Called once.
   *
   * @return the queue pair if it was idle: it then sends its final message before it is closed
   */
  Optional<IbAgent.ClosingQueuePair> close() {
    posts.close();
    enter();
    try {
      boolean goodbye = open && saysGoodbye();
      open = false;
      if (goodbye) {
        return Optional.of(new IbAgent.ClosingQueuePair(link, words));
      }
      // Runs every step even if one fails. Once the link is closed, no request is in flight.
      Closing.all(link, inFlight::abandon, this::dropWaiting, words);
      return Optional.empty();
    } finally {
      leave();
    }
  }

  private boolean saysGoodbye() {
    try {
      takeCompletions();
      boolean idle = !broken && inFlight.isEmpty() && posts.isEmpty();
      if (idle && !owner.hasPeerLeft()) {
        words.postState(link, inFlight, ControlWords.GOODBYE);
        return true;
      }
    } catch (IOException | RuntimeException e) {
      LOGGER.debug("{} is closed without notice to its peer: {}", owner, e.getMessage());
    }
    return false;
  }

  private void dropWaiting() {
    List<AutoCloseable> uses = new ArrayList<>();
    for (int type = posts.type(); type != PostQueue.NONE; type = posts.type()) {
      IbMemoryHandle target = posts.target();
      IbMemoryHandle source = posts.source();
      posts.pop();
      if (target != null) {
        uses.add(target::release);
      }
      if (source != null) {
        uses.add(source::release);
      }
    }
    Closing.all(uses);
  }

  /** The values of {@code ibv_wc_status}, by name and usual reason. */
  enum CompletionStatus {
    SUCCESS(""),
    LOC_LEN_ERR("the device refuses messages of this length; give a smaller maxMessage"),
    LOC_QP_OP_ERR("the device found the request malformed"),
    LOC_EEC_OP_ERR(""),
    LOC_PROT_ERR("the source is not registered any more, or its pages were unmapped"),
    WR_FLUSH_ERR("the link was disconnected before it could be done"),
    MW_BIND_ERR(""),
    BAD_RESP_ERR("the peer's device answered out of order"),
    LOC_ACCESS_ERR("the source's registration does not allow this access"),
    REM_INV_REQ_ERR("the peer's device refuses such a request"),
    REM_ACCESS_ERR(
        "the peer's memory is not registered there: closed, or smaller than the peer announced"),
    REM_OP_ERR("the peer's device could not do it"),
    RETRY_EXC_ERR("the peer does not answer: its process, its NIC or the network between is down"),
    RNR_RETRY_EXC_ERR("the peer's queue pair is not ready"),
    LOC_RDD_VIOL_ERR(""),
    REM_INV_RD_REQ_ERR(""),
    REM_ABORT_ERR("the peer aborted it"),
    INV_EECN_ERR(""),
    INV_EEC_STATE_ERR(""),
    FATAL_ERR("the device has failed"),
    RESP_TIMEOUT_ERR("the peer's device did not respond in time"),
    GENERAL_ERR("the device reports no reason");

    private static final CompletionStatus[] ALL = values();

    private final String reason;

    CompletionStatus(String reason) {
      this.reason = reason;
    }

    /** Returns the name and the usual reason, for a message. */
    static String describe(int status) {
      if (status < 0 || status >= ALL.length) {
        return "ibv_wc_status " + status;
      }
      CompletionStatus known = ALL[status];
      return "IBV_WC_" + known.name() + (known.reason.isEmpty() ? "" : " (" + known.reason + ")");
    }
  }
}
