// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Mailboxes.FutureReceiver;
import io.fluxccl.bootstrap.Mailboxes.Receiver;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import io.netty.channel.EventLoop;
import java.net.InetAddress;
import java.time.Duration;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The operations, deadlines, failure and closing of every bootstrap. A subclass sends messages to
 * other ranks. All state belongs to the event loop's thread; public methods schedule work there.
 */
abstract class AbstractBootstrap implements Bootstrap {
  private static final Logger LOG = LoggerFactory.getLogger(AbstractBootstrap.class);
  private static final long CLOSE_SECONDS = 5;

  final EventLoop loop;

  private final String name;
  private final int rank;
  private final int nRanks;
  final int messageLimit;
  private final SharedEventLoop thread;
  private final Lifecycle lifecycle;
  private final CompletableFuture<Void> closed = NonblockingFuture.create();

  // Set once, on the event loop.
  private volatile List<Contact> members;

  // The fields below are accessed only on the event loop.
  final Mailboxes mailboxes;
  private final Unsent unsent;
  final PendingOperations operations;
  final SubGroups subGroups = new SubGroups(this);
  final DumpResponder reports = new DumpResponder(this);
  private final BitSet departed = new BitSet();

  AbstractBootstrap(String name, int rank, int nRanks, int messageLimit) {
    RankEnvironment.checkPlace(rank, nRanks);
    this.name = name;
    this.rank = rank;
    this.nRanks = nRanks;
    this.messageLimit = messageLimit;
    this.lifecycle = new Lifecycle("the bootstrap of " + describe());
    this.mailboxes = new Mailboxes(nRanks);
    this.unsent = new Unsent(this);
    this.thread = SharedEventLoop.acquire();
    this.loop = thread.loop();
    this.operations = new PendingOperations(this);
    if (job() == this) {
      RankLog.joined(rank);
      lifecycle.own(() -> RankLog.left(rank));
      loop.execute(RankLog::serveAll);
    }
  }

  // ---- what subclasses do; all on the event loop ----

  /** Sends to another rank; completes {@code done} when the network has it. */
  abstract void transmit(int peer, StreamKey key, Message message, CompletableFuture<Void> done);

  /** Sends a broadcast that has arrived on to other ranks. */
  abstract void forwardBroadcast(StreamKey key, Message message);

  /** Whether a message of a departed rank may still arrive. */
  boolean mayStillDeliver(int peer) {
    return false;
  }

  /** Notifies the other ranks that the job has failed. */
  abstract void relay(FluxCclException reason);

  /** Returns the silent ranks and for how long each is silent at least, in ns. */
  abstract Map<Integer, Long> silentNanos();

  /** Called once for each rank that has left in good order. This rank may be leaving too. */
  void onDeparture(int peer) {}

  /** Leaves in good order: flushes, sends goodbyes, closes everything but the event loop. */
  abstract CompletableFuture<Void> leave();

  // ---- the ranks ----

  @Override
  public final String name() {
    return name;
  }

  @Override
  public final int rank() {
    return rank;
  }

  @Override
  public final int nRanks() {
    return nRanks;
  }

  @Override
  public final long hostHash(int ofRank) {
    return member(ofRank).hostHash();
  }

  @Override
  public final long processHash(int ofRank) {
    return member(ofRank).processHash();
  }

  @Override
  public final InetAddress hostAddress() {
    return member(rank).address().getAddress();
  }

  final Contact member(int ofRank) {
    List<Contact> known = members;
    if (known == null) {
      throw notInitialized();
    }
    if (ofRank < 0 || ofRank >= nRanks) {
      throw InvalidUsage.of("rank=%s of nRanks=%s", ofRank, nRanks);
    }
    return known.get(ofRank);
  }

  private InvalidUsage notInitialized() {
    return InvalidUsage.of("%s is not initialized; call initialize and await it first", describe());
  }

  final void initialized(List<Contact> all) {
    members = all;
  }

  /** Returns a text for messages. Called by the constructor as well. */
  String describe() {
    return "rank " + rank + " of " + nRanks + (name.isEmpty() ? "" : " of job " + name);
  }

  // ---- messages ----

  @Override
  public final CompletableFuture<Void> send(int peer, int tag, byte[] message, Deadline deadline) {
    CompletableFuture<Void> done = NonblockingFuture.create();
    submit(
        done,
        () -> {
          checkPeer(peer);
          checkMessage(message);
          post(peer, tagged(rank, tag), Message.of(message).copy(), done);
          String operation = "send(peer=" + peer + ", tag=" + tag + ")";
          operations.trackSend(
              done, deadline, () -> operations.late(operation, List.of(peer), deadline));
        });
    return done;
  }

  @Override
  public final CompletableFuture<byte[]> recv(int peer, int tag, Deadline deadline) {
    CompletableFuture<byte[]> done = NonblockingFuture.create();
    submit(
        done,
        () -> {
          checkPeer(peer);
          StreamKey key = tagged(peer, tag);
          Receiver receiver = new FutureReceiver(done, this::left);
          receive(key, receiver);
          operations.track(
              done,
              deadline,
              () ->
                  operations.late(
                      "recv(peer=" + peer + ", tag=" + tag + ")", List.of(peer), deadline),
              () -> mailboxes.forget(key, receiver));
        });
    return done;
  }

  private static StreamKey tagged(int peer, int tag) {
    return new StreamKey(peer, StreamKey.Space.TAGGED, tag, 0);
  }

  /** Sends within the operation of another class. */
  final void post(int peer, StreamKey key, Message message, CompletableFuture<Void> done) {
    if (peer == rank) {
      mailboxes.deliver(key, message.copy());
      done.complete(null);
    } else if (departed.get(peer)) {
      done.completeExceptionally(left(peer));
    } else {
      unsent.send(peer, key, message, done);
    }
  }

  /** Waits for the next message of a key, unless its sender has left. */
  final void receive(StreamKey key, Receiver receiver) {
    if (!mailboxes.has(key) && streamEnded(key.peer())) {
      receiver.fail(left(key.peer()));
    } else {
      mailboxes.receive(key, receiver);
    }
  }

  final void abandon(StreamKey key, Receiver receiver) {
    mailboxes.forget(key, receiver);
    mailboxes.abandon(key);
  }

  /** Delivers a message of another rank. */
  final void arrived(StreamKey key, Message message) {
    if (hasEnded()) {
      return;
    }
    if (!mailboxes.unreceived.hasRoom(message)) {
      int peer = mailboxes.unreceived.fullest();
      fail(
          TransportFailure.of(
              peer,
              "%s: over %s bytes wait here for a receive, most of them from rank %s; receive them"
                  + " before it sends more, or give this JVM a larger heap",
              describe(),
              WaitingBytes.LIMIT,
              peer));
      return;
    }
    if (key.group() != StreamKey.ALL) {
      subGroups.arrived(key, message);
      return;
    }
    forwardBroadcast(key, message);
    mailboxes.deliver(key, message);
  }

  // ---- failure and leaving ----

  @Override
  public final void abort(FluxCclException reason) {
    if (reason == null) {
      throw new InvalidUsage("reason=null; say why the job ends");
    }
    operations.onLoop(() -> fail(reason));
  }

  @Override
  public final CompletableFuture<FluxCclException> failure() {
    return lifecycle.failed();
  }

  /** Fails the job; only the first reason counts. */
  final void fail(FluxCclException cause) {
    FluxCclException reason = cause.inJob(name);
    if (!lifecycle.fail(reason)) {
      return;
    }
    if (job() == this) {
      reports.logFailure(reason);
    }
    // Notifies the other ranks first: a completion below may close this bootstrap.
    relay(reason);
    subGroups.fail(reason);
    operations.endAll(reason);
    mailboxes.clear();
    lifecycle.announceFailure();
  }

  /** Whether the job has failed or this bootstrap is closing. */
  final boolean hasEnded() {
    return lifecycle.failure() != null;
  }

  final boolean hasDeparted(int peer) {
    return departed.get(peer);
  }

  /** Records that a rank has left in good order. */
  final void departed(int peer) {
    if (peer >= 0 && peer < nRanks && peer != rank && !departed.get(peer)) {
      departed.set(peer);
      streamMayHaveEnded(peer);
      onDeparture(peer);
      subGroups.departed(peer);
    }
  }

  /** Fails the receivers that wait for a rank of which no message can arrive any more. */
  final void streamMayHaveEnded(int peer) {
    if (!hasEnded() && streamEnded(peer)) {
      mailboxes.removeReceivers(peer).forEach(receiver -> receiver.fail(left(peer)));
      subGroups.streamMayHaveEnded(peer);
    }
  }

  private boolean streamEnded(int peer) {
    return departed.get(peer) && !mayStillDeliver(peer);
  }

  final RemoteFailure left(int peer) {
    return RemoteFailure.of(peer, "%s needs rank %s, which has left", describe(), peer);
  }

  @Override
  public final CompletableFuture<Void> closeAsync() {
    if (lifecycle.beginClose()) {
      loop.execute(this::beginClose);
    }
    return closed.copy();
  }

  private void beginClose() {
    Aborted reason = Aborted.of(rank, "%s: this bootstrap was closed", describe());
    if (lifecycle.fail(reason)) {
      operations.endAllButSends(reason);
      lifecycle.announceFailure();
    }
    subGroups.close();
    leave().whenComplete((left, trouble) -> endClose(reason));
  }

  private void endClose(Aborted reason) {
    operations.endAll(reason);
    mailboxes.clear();
    lifecycle.closeChildren();
    RankLog.serveAll();
    thread.leave().whenComplete((left, unused) -> closed.complete(null));
  }

  @Override
  public final void close() {
    boolean mayWait = !loop.inEventLoop();
    if (mayWait && !closed.isDone()) {
      Closing.requireBlockingThread(describe());
    }
    CompletableFuture<Void> done = closeAsync();
    if (mayWait) {
      Closing.await(
          done,
          CLOSE_SECONDS,
          () -> LOG.warn("{}: closing takes over {} s and continues", describe(), CLOSE_SECONDS));
    }
  }

  @Override
  public Runnable report(Supplier<Snapshot> part) {
    return reports.add(part);
  }

  @Override
  public CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    return reports.dump(all, limit);
  }

  // ---- operations ----

  /** Begins an operation on the event loop; see {@link PendingOperations#submit}. */
  final void submit(CompletableFuture<?> result, Runnable operation) {
    operations.submit(result, operation);
  }

  /** Returns why no operation can begin now, or null. */
  final FluxCclException refusal() {
    FluxCclException ended = lifecycle.failure();
    return ended == null && members == null ? notInitialized() : ended;
  }

  final void checkPeer(int peer) {
    if (peer < 0 || peer >= nRanks) {
      throw InvalidUsage.of("rank=%s of nRanks=%s; give 0 to nRanks - 1", peer, nRanks);
    }
  }

  final void checkMessage(byte[] message) {
    if (message == null) {
      throw new InvalidUsage("message=null");
    }
    if (message.length > messageLimit) {
      throw InvalidUsage.of(
          "a message of %s bytes; the limit is %s, see BootstrapOptions.messageLimit",
          message.length, messageLimit);
    }
  }
}
