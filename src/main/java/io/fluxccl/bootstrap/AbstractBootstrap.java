// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Mailboxes.WaitingBytes;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.trace.Snapshot;
import io.netty.channel.EventLoop;
import java.net.InetAddress;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.ObjIntConsumer;
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
  private final WaitingBytes unsent;
  final PendingOperations operations;

  /** The sub-groups that have this rank, by id; each stays until all its ranks have left it. */
  final Map<Long, SubBootstrap> subGroups = new HashMap<>();

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
    this.unsent = new WaitingBytes(nRanks, WaitingBytes.LIMIT);
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

  /** Sends to another rank; the future completes when the network has the message. */
  abstract CompletableFuture<Void> transmit(int peer, StreamKey key, byte[] message);

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
    checkPeer(ofRank);
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
    operations.submit(
        done,
        () -> {
          checkPeer(peer);
          checkMessage(message);
          pipe(post(peer, tagged(rank, tag), message.clone()), done);
          String operation = "send(peer=" + peer + ", tag=" + tag + ")";
          operations.trackSend(done, deadline, operation, () -> List.of(peer));
        });
    return done;
  }

  @Override
  public final CompletableFuture<byte[]> recv(int peer, int tag, Deadline deadline) {
    CompletableFuture<byte[]> done = NonblockingFuture.create();
    operations.submit(
        done,
        () -> {
          checkPeer(peer);
          StreamKey key = tagged(peer, tag);
          receive(key, done);
          operations.track(
              done,
              deadline,
              "recv(peer=" + peer + ", tag=" + tag + ")",
              () -> List.of(peer),
              () -> mailboxes.forget(key, done));
        });
    return done;
  }

  private static StreamKey tagged(int peer, int tag) {
    return new StreamKey(peer, StreamKey.Space.TAGGED, tag, 0);
  }

  /**
   * Sends within an operation. Too many bytes that the network has not taken yet fail the job: a
   * lost message would leave its receiver waiting.
   */
  final CompletableFuture<Void> post(int peer, StreamKey key, byte[] message) {
    if (peer == rank) {
      mailboxes.deliver(key, message.clone());
      return CompletableFuture.completedFuture(null);
    } else if (departed.get(peer)) {
      return CompletableFuture.failedFuture(left(peer));
    } else if (!unsent.hasRoom(message)) {
      TransportFailure full =
          full(
              unsent,
              "%s: over %s bytes wait to be sent, most of them to rank %s, which does not take"
                  + " them; is it stopped? Await the futures of sends before sending more");
      fail(full);
      return CompletableFuture.failedFuture(full);
    }
    long bytes = WaitingBytes.of(message);
    unsent.add(peer, bytes);
    return transmit(peer, key, message).whenComplete((taken, failure) -> unsent.add(peer, -bytes));
  }

  private TransportFailure full(WaitingBytes waiting, String problem) {
    int peer = waiting.fullest();
    return TransportFailure.of(peer, problem, describe(), WaitingBytes.LIMIT, peer);
  }

  /** Completes a receiver with the next message of a key, unless its sender has left. */
  final void receive(StreamKey key, CompletableFuture<byte[]> receiver) {
    if (!mailboxes.has(key) && streamEnded(key.peer())) {
      receiver.completeExceptionally(left(key.peer()));
    } else {
      mailboxes.receive(key, receiver);
    }
  }

  /** Delivers a message of another rank; keeps one for a sub-group that has not formed here. */
  final void arrived(StreamKey key, byte[] message) {
    if (hasEnded()) {
      return;
    }
    SubBootstrap group = subGroups.get(key.group());
    if (!mailboxes.unreceived.hasRoom(message)) {
      fail(
          full(
              mailboxes.unreceived,
              "%s: over %s bytes wait here for a receive, most of them from rank %s; receive them"
                  + " before it sends more, or give this JVM a larger heap"));
    } else if (group != null) {
      group.arrivedAtJob(key, message);
    } else {
      mailboxes.deliver(key, message);
    }
  }

  static <T> void pipe(CompletableFuture<T> from, CompletableFuture<T> to) {
    pipe(from, to, unwanted -> {});
  }

  /**
   * Completes a future with the outcome of another; {@code unwanted} gets the value if it was
   * complete already.
   */
  static <T> void pipe(CompletableFuture<T> from, CompletableFuture<T> to, Consumer<T> unwanted) {
    from.whenComplete(
        (value, thrown) -> {
          if (thrown == null) {
            if (!to.complete(value)) {
              unwanted.accept(value);
            }
          } else {
            to.completeExceptionally(FluxCclException.from(thrown));
          }
        });
  }

  // ---- sub-groups ----

  /** Adds a sub-group, with the messages of ranks that formed it earlier. */
  final void add(SubBootstrap group) {
    subGroups.put(group.id, group);
    mailboxes.take(group.id, group::arrivedAtJob);
  }

  // A copy: each may remove itself.
  private void forEachSubGroup(Consumer<SubBootstrap> action) {
    List.copyOf(subGroups.values()).forEach(action);
  }

  private void forEachSubGroupWith(int peer, ObjIntConsumer<SubBootstrap> action) {
    forEachSubGroup(
        group -> {
          int there = group.ranks.indexOf(peer);
          if (there >= 0) {
            action.accept(group, there);
          }
        });
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
    forEachSubGroup(group -> group.fail(group.fromJob(reason)));
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
      forEachSubGroupWith(peer, SubBootstrap::hasLeft);
    }
  }

  /** Fails the receivers that wait for a rank of which no message can arrive any more. */
  final void streamMayHaveEnded(int peer) {
    if (!hasEnded() && streamEnded(peer)) {
      mailboxes
          .removeReceivers(peer)
          .forEach(receiver -> receiver.completeExceptionally(left(peer)));
      forEachSubGroupWith(peer, AbstractBootstrap::streamMayHaveEnded);
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
    forEachSubGroup(AbstractBootstrap::closeAsync);
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

  // ---- operations ----

  /** Returns why no operation can begin now, or null. */
  final FluxCclException refusal() {
    FluxCclException ended = lifecycle.failure();
    return ended == null && members == null ? notInitialized() : ended;
  }

  final void checkPeer(int peer) {
    RankEnvironment.checkPlace(peer, nRanks);
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
