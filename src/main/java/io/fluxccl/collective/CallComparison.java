// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.BiConsumer;
import java.util.function.LongFunction;
import java.util.function.Supplier;

/**
 * Compares the calls of a lane between ranks, and aborts with the first ones that differ. Each rank
 * keeps a {@link History} of the collectives of all ranks, and for each peer one of what it sends
 * there and one of what it receives from there. A quarter of a second after a call a rank sends the
 * next rank its latest collectives, and its peers what it has sent them. So each rank is compared
 * with the next one. If any two ranks differ, so do two neighbours.
 *
 * <p>Messages with data carry a signature of their own, so that no rank computes with data of
 * another call. A rank that finds another signature there {@linkplain #differs asks} the sender for
 * its calls, and waits for the abort.
 *
 * <pre>message = uint8 asks, string what this rank does, history of all, history of this pair</pre>
 */
final class CallComparison {
  private static final long LOOK_MILLIS = 250;

  /** Time that ranks have to find the calls that differ, after data of another call arrived. */
  private static final long EXPLAIN_MILLIS = 5_000;

  /** The largest group in which each rank sends its history to all peers after an all-to-all-v. */
  private static final int FEW_RANKS = 16;

  private static final int MOST_TEXT = 1 << 10;
  private static final History NO_CALLS = new History(1);
  private static final Executor LATER =
      CompletableFuture.delayedExecutor(LOOK_MILLIS, TimeUnit.MILLISECONDS, BlockingTasks.EXECUTOR);

  private final Communicator communicator;
  private final int tag;
  private final int rank;
  private final int nRanks;

  /** Sends a message to a peer. */
  private final BiConsumer<Integer, byte[]> send;

  /** Returns a text of what this rank does on this lane. */
  private final Supplier<String> activity;

  /** Null if messages carry the signatures. */
  private final CallLedger ledger;

  // Calls are added under the lane's lock.
  private final History all = new History(History.KEPT);
  private final AtomicReferenceArray<History> sent;
  private final AtomicReferenceArray<History> received;

  /** Number of calls with each peer after which this rank sends its history to that peer. */
  private final long[] toTell;

  // The latest histories from each peer: of its collectives, and of its messages to this rank.
  private final AtomicReferenceArray<History> theirs;
  private final AtomicReferenceArray<History> theirSent;

  private final AtomicReferenceArray<CompletableFuture<String>> questions;
  private final AtomicBoolean hasDiffered = new AtomicBoolean();
  private volatile boolean isLookDue;
  private volatile boolean hasReceived;

  // Used only by look(), which one thread at a time runs.
  private long lastSent;
  private final long[] told;

  CallComparison(Lane lane, CallLedger ledger) {
    this.communicator = lane.communicator;
    this.tag = lane.options.tag();
    this.ledger = ledger;
    this.rank = communicator.bootstrap().rank();
    this.nRanks = communicator.bootstrap().nRanks();
    this.send = lane.watch::sendCalls;
    this.activity = () -> LateRuns.activity(lane);
    this.sent = new AtomicReferenceArray<>(nRanks);
    this.received = new AtomicReferenceArray<>(nRanks);
    this.theirs = new AtomicReferenceArray<>(nRanks);
    this.theirSent = new AtomicReferenceArray<>(nRanks);
    this.questions = new AtomicReferenceArray<>(nRanks);
    this.toTell = new long[nRanks];
    this.told = new long[nRanks];
  }

  // ---- under the lane's lock ----

  /**
   * Adds a call that is enqueued next. Allocates nothing, but for the first call with a peer.
   *
   * @return the signature that its messages carry
   */
  int add(CollectiveCall call) {
    long what = CallSignature.what(call);
    long common = CallSignature.count(call);
    int signature = CallSignature.of(what, common);
    if (nRanks == 1) {
      return signature;
    }
    if (call.collective().isByAll()) {
      long hash = all.add(what, common);
      if (ledger != null) {
        ledger.publish(all.last(), hash);
      }
    }
    if (call instanceof SendReceive pair) {
      addSent(pair.destination(), what, pair.sendCount(), true);
      addReceived(pair.source(), what, pair.receiveCount());
    } else if (call instanceof AllToAllV uneven) {
      int size = uneven.type().size();
      for (int peer = 0; peer < nRanks; peer++) {
        addSent(peer, what, uneven.sendBytes(rank, peer) / size, nRanks <= FEW_RANKS);
        addReceived(peer, what, uneven.receiveBytes(rank, peer) / size);
      }
    }
    if (!isLookDue) {
      isLookDue = true;
      LATER.execute(this::look);
    }
    return signature;
  }

  /** Takes back the last call, because it could not be enqueued and no peer counts on it. */
  void remove(CollectiveCall call) {
    if (nRanks == 1) {
      return;
    }
    if (call.collective().isByAll()) {
      all.removeLast();
    }
    for (int peer = 0; peer < nRanks && !(call instanceof UniformCall); peer++) {
      boolean isUneven = call instanceof AllToAllV && peer != rank;
      if (isUneven || call.destination() == peer && peer != rank) {
        sent.get(peer).removeLast();
      }
      if (isUneven || call.source() == peer && peer != rank) {
        received.get(peer).removeLast();
      }
    }
  }

  private void addSent(int peer, long what, long count, boolean isTold) {
    if (peer == CollectiveCall.NO_PEER || peer == rank) {
      return;
    }
    History history = of(sent, peer);
    long hash = history.add(what, count);
    if (ledger != null) {
      ledger.publishSent(peer, history.last(), hash);
    }
    toTell[peer] += isTold ? 1 : 0;
  }

  private void addReceived(int peer, long what, long count) {
    if (peer != CollectiveCall.NO_PEER && peer != rank) {
      of(received, peer).add(what, count);
      hasReceived = true;
    }
  }

  private static History of(AtomicReferenceArray<History> histories, int peer) {
    if (histories.get(peer) == null) {
      histories.set(peer, new History(History.SENT));
    }
    return histories.get(peer);
  }

  // ---- any thread ----

  private boolean isOver() {
    return communicator.failure() != null;
  }

  /**
   * Returns whether a run must not be reported as complete, because a rank of this host has called
   * other collectives than this rank until then. The communicator fails soon.
   */
  boolean refuses(Run run) {
    return refuses(run.lastRound) || run.others() != null && run.others().areRefused();
  }

  /** {@link #refuses(Run)} for all collectives until a number. */
  boolean refuses(long last) {
    if (ledger == null) {
      return false;
    }
    int different = ledger.differing(last);
    for (int peer = 0; hasReceived && different < 0 && peer < nRanks; peer++) {
      History from = received.get(peer);
      different = from != null && ledger.differs(peer, from) ? peer : different;
    }
    if (different >= 0) {
      differs(different);
    }
    return different >= 0;
  }

  /** Sends the peers what they compare, and compares what they have sent before. */
  private void look() {
    isLookDue = false;
    if (isOver()) {
      return;
    }
    int next = (rank + 1) % nRanks;
    boolean isNew = all.last() > lastSent;
    lastSent = all.last();
    for (int peer = 0; peer < nRanks; peer++) {
      boolean isNewTo = toTell[peer] != told[peer];
      told[peer] = toTell[peer];
      if (peer != rank && (isNewTo || isNew && peer == next)) {
        tell(peer, false, "");
      }
      compare(peer);
    }
  }

  private void tell(int peer, boolean asks, String text) {
    WireWriter out = new WireWriter().uint8(asks ? 1 : 0).string(text);
    all.copy().write(out);
    History to = sent.get(peer);
    (to == null ? NO_CALLS : to).copy().write(out);
    send.accept(peer, out.toBytes());
  }

  /** Called with a peer's message, which is not trusted. */
  void received(int peer, WireReader in) {
    boolean asks = in.uint8("asks") != 0;
    String text = in.string("activity", MOST_TEXT);
    theirs.set(peer, History.read(in));
    theirSent.set(peer, History.read(in));
    in.end();
    compare(peer);
    CompletableFuture<String> question = questions.get(peer);
    if (question != null && !text.isEmpty()) {
      question.complete(text);
    }
    if (asks) {
      tell(peer, false, activity.get());
    }
  }

  private void compare(int peer) {
    if (theirs.get(peer) == null || isOver()) {
      return;
    }
    History mine = all.copy();
    long number = mine.firstDifference(theirs.get(peer));
    if (number > 0) {
      abort(mine, peer, theirs.get(peer), number, "call " + number);
      return;
    }
    History from = received.get(peer);
    if (from != null) {
      History pair = from.copy();
      long message = pair.firstDifference(theirSent.get(peer));
      if (message > 0) {
        String what = "message " + message + " from rank " + peer + " to rank " + rank;
        abort(pair, peer, theirSent.get(peer), message, what);
      }
    }
  }

  private void abort(History mine, int peer, History theirCalls, long number, String what) {
    boolean isHashShown = mine.text(number, false).equals(theirCalls.text(number, false));
    LongFunction<String> textOf = of -> (of == rank ? mine : theirCalls).text(number, isHashShown);
    int first = Math.min(rank, peer);
    int second = Math.max(rank, peer);
    // Attributed to no rank, because either of the two may be wrong.
    communicator.abort(
        InvalidUsage.of(
            "rank %d calls %s as %s of lane %d, rank %d calls %s; all ranks must call the same"
                + " operations in the same order",
            first, textOf.apply(first), what, tag, second, textOf.apply(second)));
  }

  /**
   * Called when data of another call has arrived from a peer. Waits for nothing: the communicator
   * fails soon, as soon as the two ranks know which calls differ.
   */
  void differs(int peer) {
    if (!hasDiffered.compareAndSet(false, true)) {
      return;
    }
    BlockingTasks.EXECUTOR.execute(
        () ->
            ask(peer)
                .completeOnTimeout("", EXPLAIN_MILLIS, TimeUnit.MILLISECONDS)
                .thenAcceptAsync(answer -> abortUnexplained(peer, answer), BlockingTasks.EXECUTOR));
  }

  /**
   * Aborts even if no histories differ: one rank may be in a collective, the other in a
   * send-receive.
   */
  private void abortUnexplained(int peer, String answer) {
    compare(peer);
    if (!isOver()) {
      History mine = all.copy();
      String call = mine.last() == 0 ? "none" : mine.text(mine.last(), false);
      String does = answer.isEmpty() ? "does not answer what it does" : answer;
      communicator.abort(
          InvalidUsage.of(
              "rank %d is in %s of lane %d, or a send-receive after that, and has got data of"
                  + " another call from rank %d, which %s; all ranks must call the same operations"
                  + " in the same order",
              rank, call, tag, peer, does));
    }
  }

  /**
   * Asks a peer what it does on this lane.
   *
   * @return completes with the peer's text; the caller bounds how long it waits
   */
  CompletableFuture<String> ask(int peer) {
    CompletableFuture<String> question = new CompletableFuture<>();
    questions.set(peer, question);
    tell(peer, true, "");
    return question;
  }

  /**
   * The signatures of the latest calls of one order, each with a hash of all calls until then. If
   * two ranks have equal hashes of one call, they have made the same calls before it, too. One
   * thread at a time adds calls, which allocates nothing and takes no lock. Any thread may copy
   * them.
   */
  static final class History {
    /** Calls that a rank keeps. */
    static final int KEPT = 1024;

    /** Calls in a message, and those with one peer that a rank keeps. */
    static final int SENT = 64;

    private static final VarHandle LAST;
    private static final int WORDS = 3;
    private static final int COUNT = 1;
    private static final int CHAIN = 2;

    static {
      try {
        LAST = MethodHandles.lookup().findVarHandle(History.class, "last", long.class);
      } catch (ReflectiveOperationException e) {
        throw new ExceptionInInitializerError(e);
      }
    }

    private final long[] words;
    private final int kept;
    private long chain;

    /** The number of the oldest call that is valid. */
    private long first = 1;

    /** The number of the last call, from 1. */
    @SuppressWarnings("FieldMayBeFinal") // LAST writes it
    private long last;

    /** Creates an empty history that keeps a number of calls. */
    History(int kept) {
      this.kept = kept;
      this.words = new long[kept * WORDS];
    }

    private int at(long number) {
      return (int) ((number - 1) % kept) * WORDS;
    }

    /** Adds a call; returns the hash of all calls until this one. */
    long add(long what, long count) {
      long number = last + 1;
      int at = at(number);
      chain = CallSignature.mix(CallSignature.mix(chain, what), count);
      words[at] = what;
      words[at + COUNT] = count;
      words[at + CHAIN] = chain;
      // Pairs with the acquire in copy().
      LAST.setRelease(this, number);
      return chain;
    }

    /** Returns the hash of all calls until one that is kept. */
    long hash(long number) {
      return number == 0 ? 0 : words[at(number) + CHAIN];
    }

    /** Takes back the last call. */
    void removeLast() {
      long number = last - 1;
      chain = hash(number);
      LAST.setRelease(this, number);
    }

    /** Returns the number of calls so far. */
    long last() {
      return (long) LAST.getAcquire(this);
    }

    /** Returns a copy of the latest calls, which no thread changes. */
    History copy() {
      History copy = new History(kept);
      long until = last();
      System.arraycopy(words, 0, copy.words, 0, words.length);
      VarHandle.loadLoadFence();
      // The writer may have begun to overwrite one call more than it has published.
      long overwritten = (long) LAST.getOpaque(this) + 1 - kept;
      copy.first = Math.max(1, overwritten + 1);
      copy.last = until;
      return copy;
    }

    /** Returns the number of the first call that differs from a peer's; 0 if none is known. */
    long firstDifference(History other) {
      long common = Math.min(last, other.last);
      long oldest = Math.max(first, other.first);
      if (common < oldest || has(CHAIN, other, common)) {
        return 0;
      }
      for (long number = oldest; number < common; number++) {
        if (!has(0, other, number) || !has(COUNT, other, number)) {
          return number;
        }
      }
      return common; // if this call is the same, one before the oldest differs
    }

    private boolean has(int word, History other, long number) {
      return words[at(number) + word] == other.words[other.at(number) + word];
    }

    /** Returns the text of a call that is kept. */
    String text(long number, boolean isHashShown) {
      return CallSignature.text(words[at(number)], words[at(number) + COUNT], isHashShown);
    }

    /** Writes the latest calls of a copy. */
    void write(WireWriter out) {
      int n = (int) Math.max(0, Math.min(SENT, last - first + 1));
      out.int64(last).int32(n);
      for (long number = last - n + 1; number <= last; number++) {
        int at = at(number);
        out.int64(words[at]).int64(words[at + COUNT]).int64(words[at + CHAIN]);
      }
    }

    /** Reads what {@link #write} has written. */
    static History read(WireReader in) {
      long last = in.int64("last call", 0, Long.MAX_VALUE / 2);
      int n = in.int32("calls", 0, (int) Math.min(SENT, last));
      History history = new History(SENT);
      history.last = last;
      history.first = last - n + 1;
      for (long number = history.first; number <= last; number++) {
        int at = history.at(number);
        history.words[at] = in.int64("what");
        history.words[at + COUNT] = in.int64("count");
        history.words[at + CHAIN] = in.int64("hash");
      }
      return history;
    }
  }
}
