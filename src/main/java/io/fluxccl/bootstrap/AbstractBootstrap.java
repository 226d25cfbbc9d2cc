package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.netty.channel.EventLoop;
import java.net.InetAddress;
import java.util.BitSet;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What all bootstraps have in common: the meaning of the operations, deadlines, failure and
 * leaving. How a message gets to another rank is the subclass's. All state belongs to the event
 * loop's thread; public methods hand over to it.
 */
abstract class AbstractBootstrap implements Bootstrap {
  private static final Logger LOG = LoggerFactory.getLogger(AbstractBootstrap.class);
  private static final long CLOSE_SECONDS = 5;
  private static final long MAX_UNRECEIVED_BYTES = 1L << 30;

  final EventLoop loop;

  private final int rank;
  private final int nRanks;
  private final int messageLimit;
  private final SharedEventLoop.Lease lease;
  private final AtomicBoolean closing = new AtomicBoolean();
  private final CompletableFuture<Void> closed = new CompletableFuture<>();
  private final FailureFuture failure = new FailureFuture();

  // Set once, on the event loop.
  private volatile List<Member> members;
  private volatile FluxCclException ended;

  // The rest is of the event loop only.
  private final Mailboxes mailboxes;
  private final PendingOperations operations;
  private final RingCollectives collectives = new RingCollectives(this);
  private final BitSet departed = new BitSet();

  AbstractBootstrap(int rank, int nRanks, int messageLimit) {
    if (nRanks < 1 || nRanks > BootstrapFrameCodec.MAX_RANKS) {
      throw new InvalidUsage("nRanks=" + nRanks + "; 1 to " + BootstrapFrameCodec.MAX_RANKS);
    }
    if (rank < 0 || rank >= nRanks) {
      throw new InvalidUsage("rank=" + rank + " of nRanks=" + nRanks + "; 0 to nRanks - 1");
    }
    this.rank = rank;
    this.nRanks = nRanks;
    this.messageLimit = messageLimit;
    this.mailboxes = new Mailboxes(nRanks);
    this.lease = SharedEventLoop.acquire();
    this.loop = lease.loop();
    this.operations = new PendingOperations(loop);
  }

  // ---- what a subclass does; all on the event loop ----

  /** Sends to another rank; completes {@code done} when the network has it. */
  abstract void transmit(int peer, StreamKey key, Message message, CompletableFuture<Void> done);

  /** Whether something that a departed rank sent may still be under way. */
  abstract boolean mayStillDeliver(int peer);

  /** Tells the others that the job has failed. */
  abstract void relay(FluxCclException reason);

  /** A rank has left in good order, and it is news; this one may be leaving too. */
  abstract void onDeparture(int peer);

  /** Leaves in good order: flushes, says goodbye, closes everything but the event loop. */
  abstract CompletableFuture<Void> leave();

  // ---- who is who ----

  @Override
  public final int rank() {
    return rank;
  }

  @Override
  public final int nRanks() {
    return nRanks;
  }

  @Override
  public final int nRanksPerNode() {
    long mine = hostHash(rank);
    return (int) members.stream().filter(each -> each.hostHash() == mine).count();
  }

  @Override
  public final int localRank() {
    long mine = hostHash(rank);
    return (int) members.subList(0, rank).stream().filter(m -> m.hostHash() == mine).count();
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

  final Member member(int ofRank) {
    List<Member> known = members;
    if (known == null) {
      throw notInitialized();
    }
    if (ofRank < 0 || ofRank >= nRanks) {
      throw new InvalidUsage("rank=" + ofRank + " of nRanks=" + nRanks);
    }
    return known.get(ofRank);
  }

  private InvalidUsage notInitialized() {
    return new InvalidUsage(describe() + " is not initialized; call initialize and await it first");
  }

  final void initialized(List<Member> all) {
    members = all;
  }

  final String describe() {
    return "rank " + rank + " of " + nRanks;
  }

  // ---- messages ----

  @Override
  public final CompletableFuture<Void> send(int peer, int tag, byte[] message, Deadline deadline) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    submit(
        done,
        () -> {
          checkPeer(peer);
          checkMessage(message);
          post(peer, tagged(rank, tag), Message.of(message), done);
          String operation = "send(peer=" + peer + ", tag=" + tag + ")";
          operations.trackSend(done, deadline, () -> late(operation, peer, deadline));
        });
    return done;
  }

  @Override
  public final CompletableFuture<byte[]> recv(int peer, int tag, Deadline deadline) {
    CompletableFuture<byte[]> done = new CompletableFuture<>();
    submit(
        done,
        () -> {
          checkPeer(peer);
          StreamKey key = tagged(peer, tag);
          Receiver receiver = new FutureReceiver(this, done);
          receive(key, receiver);
          operations.track(
              done,
              deadline,
              () -> late("recv(peer=" + peer + ", tag=" + tag + ")", peer, deadline),
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
      mailboxes.deliver(key, new Message(message.bytes().clone(), false, -1));
      done.complete(null);
    } else if (departed.get(peer)) {
      done.completeExceptionally(new RemoteFailure(peer, describe() + ": rank " + peer + " left"));
    } else {
      transmit(peer, key, message, done);
    }
  }

  /** Waits for the next message of a key, unless its sender is gone. */
  final void receive(StreamKey key, Receiver receiver) {
    if (!mailboxes.has(key) && streamEnded(key.peer())) {
      receiver.fail(left(key.peer()));
    } else {
      mailboxes.receive(key, receiver);
    }
  }

  final Message poll(StreamKey key) {
    return mailboxes.poll(key);
  }

  final void abandon(StreamKey key, Receiver receiver) {
    mailboxes.forget(key, receiver);
    mailboxes.abandon(key);
  }

  /** A message has come from another rank. */
  final void arrived(StreamKey key, Message message) {
    if (ended != null) {
      return;
    }
    if (mailboxes.unreceivedBytes(key.peer()) + message.bytes().length > MAX_UNRECEIVED_BYTES) {
      fail(
          new TransportFailure(
              key.peer(),
              describe()
                  + ": over "
                  + MAX_UNRECEIVED_BYTES
                  + " bytes of rank "
                  + key.peer()
                  + " lie here unreceived; receive them before sending more"));
      return;
    }
    collectives.passOn(key, message);
    mailboxes.deliver(key, message);
  }

  // ---- collectives ----

  @Override
  public final CompletableFuture<List<byte[]>> allGather(byte[] mine, Deadline deadline) {
    return collectives.allGather(mine, deadline);
  }

  @Override
  public final CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    return collectives.exchange(tag, mine, deadline);
  }

  @Override
  public final CompletableFuture<Void> barrier(Deadline deadline) {
    return collectives.barrier(deadline);
  }

  @Override
  public final CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline) {
    return collectives.groupBarrier(ranks, deadline);
  }

  @Override
  public final CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline) {
    return collectives.broadcast(root, message, deadline);
  }

  // ---- failure and leaving ----

  @Override
  public final void abort(FluxCclException reason) {
    if (reason == null) {
      throw new InvalidUsage("reason=null; say why the job ends");
    }
    onLoop(() -> fail(reason));
  }

  @Override
  public final CompletableFuture<FluxCclException> failure() {
    return failure;
  }

  /** The job has failed; the first reason counts. */
  final void fail(FluxCclException reason) {
    if (ended != null) {
      return;
    }
    ended = reason;
    LOG.debug("{}: the job has failed", describe(), reason);
    // The others first: what completes below may close this bootstrap.
    relay(reason);
    operations.endAll(reason);
    mailboxes.clear();
    failure.settle(reason);
  }

  /** Whether the job has failed or this bootstrap is closing. */
  final boolean hasEnded() {
    return ended != null;
  }

  final boolean hasDeparted(int peer) {
    return departed.get(peer);
  }

  /** A rank has left in good order. */
  final void departed(int peer) {
    if (peer >= 0 && peer < nRanks && peer != rank && !departed.get(peer)) {
      departed.set(peer);
      streamMayHaveEnded(peer);
      onDeparture(peer);
    }
  }

  /** Who waits for a rank that is gone, and of which nothing is under way, waits in vain. */
  final void streamMayHaveEnded(int peer) {
    if (ended == null && streamEnded(peer)) {
      mailboxes.removeReceivers(peer).forEach(receiver -> receiver.fail(left(peer)));
    }
  }

  private boolean streamEnded(int peer) {
    return departed.get(peer) && !mayStillDeliver(peer);
  }

  final RemoteFailure left(int peer) {
    return new RemoteFailure(
        peer, describe() + " waits for a message of rank " + peer + ", which has left");
  }

  @Override
  public final CompletableFuture<Void> closeAsync() {
    if (closing.compareAndSet(false, true)) {
      loop.execute(this::beginClose);
    }
    return closed.copy();
  }

  private void beginClose() {
    Aborted reason = new Aborted(rank, describe() + ": this bootstrap was closed");
    if (ended == null) {
      ended = reason;
      operations.endAllButSends(reason);
      failure.settle(reason);
    }
    leave()
        .whenComplete(
            (left, trouble) -> {
              operations.endAll(reason);
              mailboxes.clear();
              lease.release().whenComplete((released, unused) -> closed.complete(null));
            });
  }

  @Override
  public final void close() {
    CompletableFuture<Void> done = closeAsync();
    if (loop.inEventLoop()) {
      return;
    }
    try {
      done.get(CLOSE_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (TimeoutException e) {
      LOG.warn("{}: closing takes over {} s and goes on", describe(), CLOSE_SECONDS);
    } catch (ExecutionException e) {
      throw FluxCclException.from(e);
    }
  }

  // ---- machinery ----

  /** The operations that have not ended. */
  final PendingOperations operations() {
    return operations;
  }

  /** The time is up: names the rank that answers no heartbeat, or else the one waited for. */
  final Timeout late(String operation, int peer, Deadline deadline) {
    OptionalInt silent = unresponsiveRank();
    String who =
        silent.isPresent()
            ? "; rank " + silent.getAsInt() + " answers no heartbeat"
            : "; is rank " + peer + " late, or did it never call?";
    return new Timeout(
        silent.orElse(peer),
        describe()
            + ": "
            + operation
            + " heard nothing from rank "
            + peer
            + " within "
            + deadline.timeout().toMillis()
            + " ms"
            + who);
  }

  /** Runs the beginning of an operation on the event loop, unless it is too late for any. */
  final void submit(CompletableFuture<?> result, Runnable operation) {
    try {
      loop.execute(
          () -> {
            FluxCclException reason = ended;
            if (reason == null && members == null) {
              reason = notInitialized();
            }
            if (reason != null) {
              result.completeExceptionally(reason);
              return;
            }
            try {
              operation.run();
            } catch (RuntimeException | Error e) {
              result.completeExceptionally(FluxCclException.from(e));
            }
          });
    } catch (RejectedExecutionException e) {
      result.completeExceptionally(
          new Aborted(rank, describe() + ": this bootstrap was closed", e));
    }
  }

  final void onLoop(Runnable task) {
    operations.onLoop(task);
  }

  final void checkPeer(int peer) {
    if (peer < 0 || peer >= nRanks) {
      throw new InvalidUsage("rank=" + peer + " of nRanks=" + nRanks + "; 0 to nRanks - 1");
    }
  }

  final void checkMessage(byte[] message) {
    if (message == null || message.length > messageLimit) {
      throw new InvalidUsage(
          message == null
              ? "message=null"
              : "a message of "
                  + message.length
                  + " bytes; the limit is "
                  + messageLimit
                  + ", see BootstrapOptions.messageLimit");
    }
  }
}
