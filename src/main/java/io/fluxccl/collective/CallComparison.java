// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
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
 * keeps a {@link CallHistory} of the collectives of all ranks, and for each peer one of what it
 * sends there and one of what it receives from there. A quarter of a second after a call a rank
 * sends the next rank its latest collectives, and its peers what it has sent them. So each rank is
 * compared with the next one. If any two ranks differ, so do two neighbours.
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
  private static final long EXPLAIN_MILLIS = 600;

  /** The largest group in which each rank sends its history to all peers after an all-to-all-v. */
  private static final int FEW_RANKS = 16;

  private static final int MOST_TEXT = 1 << 10;
  private static final CallHistory NO_CALLS = new CallHistory(1);
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
  private final CallHistory all = new CallHistory(CallHistory.KEPT);
  private final AtomicReferenceArray<CallHistory> sent;
  private final AtomicReferenceArray<CallHistory> received;

  /** Number of calls with each peer after which this rank sends its history to that peer. */
  private final long[] toTell;

  // The latest histories from each peer: of its collectives, and of its messages to this rank.
  private final AtomicReferenceArray<CallHistory> theirs;
  private final AtomicReferenceArray<CallHistory> theirSent;

  private final AtomicReferenceArray<CompletableFuture<String>> questions;
  private final AtomicBoolean hasDiffered = new AtomicBoolean();
  private volatile boolean isLookDue;
  private volatile boolean hasReceived;

  // Used only by look(), which one thread at a time runs.
  private long lastSent;
  private final long[] told;

  CallComparison(Lane lane, CallLedger ledger, LeaveNotices notices) {
    this.communicator = lane.communicator;
    this.tag = lane.options.tag();
    this.ledger = ledger;
    this.rank = communicator.bootstrap().rank();
    this.nRanks = communicator.bootstrap().nRanks();
    this.send = notices::sendCalls;
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
    CallHistory history = of(sent, peer);
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

  private static CallHistory of(AtomicReferenceArray<CallHistory> histories, int peer) {
    if (histories.get(peer) == null) {
      histories.set(peer, new CallHistory(CallHistory.SENT));
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
      CallHistory from = received.get(peer);
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
    CallHistory to = sent.get(peer);
    (to == null ? NO_CALLS : to).copy().write(out);
    send.accept(peer, out.toBytes());
  }

  /** Called with a peer's message, which is not trusted. */
  void received(int peer, WireReader in) {
    boolean asks = in.uint8("asks") != 0;
    String text = in.string("activity", MOST_TEXT);
    theirs.set(peer, CallHistory.read(in));
    theirSent.set(peer, CallHistory.read(in));
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
    CallHistory mine = all.copy();
    long number = mine.firstDifference(theirs.get(peer));
    if (number > 0) {
      abort(mine, peer, theirs.get(peer), number, "call " + number);
      return;
    }
    CallHistory from = received.get(peer);
    if (from != null) {
      CallHistory pair = from.copy();
      long message = pair.firstDifference(theirSent.get(peer));
      if (message > 0) {
        String what = "message " + message + " from rank " + peer + " to rank " + rank;
        abort(pair, peer, theirSent.get(peer), message, what);
      }
    }
  }

  private void abort(CallHistory mine, int peer, CallHistory theirCalls, long number, String what) {
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
      CallHistory mine = all.copy();
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
}
