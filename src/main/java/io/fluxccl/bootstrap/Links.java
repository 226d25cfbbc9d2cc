// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.Handshake.Loss;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.ObjLongConsumer;

/**
 * The connections of one process with the others of its job, by the address at which each listens.
 * A connection is made when it is first needed; both sides use it. Only on the event loop.
 */
final class Links {
  static final InetSocketAddress NOWHERE = new InetSocketAddress("0.0.0.0", 0);

  private static final String NO_ANSWER = "no answer yet";
  private static final int MAX_QUEUED_MESSAGES = 64;

  final Job job;
  private final Map<InetSocketAddress, Route> routes = new HashMap<>();

  /** The links that other processes have opened. */
  private final Map<InetSocketAddress, Link> incoming = new HashMap<>();

  /** The accepted sockets that have not proved themselves yet, the oldest first. */
  final Set<ChannelHandlerContext> unproven = new LinkedHashSet<>();

  private CompletableFuture<Void> flushed;
  private boolean leaving;

  Links(Job job) {
    this.job = job;
  }

  // ---- sending ----

  /** Sends a message of the join protocol. It may be lost; the protocol repeats it. */
  void send(InetSocketAddress to, JoinMessage message) {
    if (!leaving) {
      routes.computeIfAbsent(to, Route::new).send(message);
    }
  }

  /** Sends a message of a group; completes {@code done} when the network has it. */
  void send(InetSocketAddress to, int rank, Data data, CompletableFuture<Void> done) {
    if (job.process.hasEnded(to)) {
      done.completeExceptionally(Link.unsent(rank));
      return;
    }
    routes.computeIfAbsent(to, Route::new).send(new Queued(data, rank, done));
  }

  /** Returns whether frames of a process may still arrive. */
  boolean isOpen(InetSocketAddress peer) {
    Route route = routes.get(peer);
    return incoming.containsKey(peer)
        || (route != null && route.link != null && !route.link.hasEnded());
  }

  /** Reports when the last bytes of each connected process arrived. */
  void forEachReceived(ObjLongConsumer<InetSocketAddress> consumer) {
    forEachLink(
        each -> {
          if (!each.hasEnded()) {
            consumer.accept(each.peer, each.lastReceivedNanos());
          }
        });
  }

  /** Fails queued messages for a process that has left, died, or is sent nothing more. */
  void shut(InetSocketAddress peer, FluxCclException reason) {
    Route route = routes.get(peer);
    if (route != null) {
      route.failQueue(reason);
    }
    drained();
  }

  /** Delays attempts to connect: each twice as long as the one before, from 10 to 200 ms. */
  static final class Backoff {
    private static final long MAX_MILLIS = 200;
    private long millis = 10;

    void schedule(EventLoop loop, Runnable attempt) {
      loop.schedule(attempt, millis, TimeUnit.MILLISECONDS);
      millis = Math.min(2 * millis, MAX_MILLIS);
    }
  }

  private record Queued(Data data, int rank, CompletableFuture<Void> done) {}

  /** The way to one process: its link, or the attempt to get one. */
  private final class Route implements Handshake.Outcome {
    private final InetSocketAddress to;

    /** The address is the job's: any process may listen there. */
    private final boolean isShared;

    private final ArrayDeque<JoinMessage> messages = new ArrayDeque<>();
    private final ArrayDeque<Queued> queue = new ArrayDeque<>();
    private Link link;
    private Handshake.Connector connector;
    private Backoff backoff = new Backoff();
    private String trouble = NO_ANSWER;

    Route(InetSocketAddress to) {
      this.to = to;
      this.isShared = job.isShared(to);
    }

    private boolean isReady() {
      if (link != null && link.hasEnded()) {
        link = null;
      }
      return link != null;
    }

    void send(JoinMessage message) {
      if (isReady()) {
        link.send(message);
        return;
      }
      boolean isRepeated = message instanceof Beat || message instanceof Waiting;
      if (!isRepeated || connector == null) {
        messages.add(message);
        while (messages.size() > (isShared ? 1 : MAX_QUEUED_MESSAGES)) {
          messages.remove();
        }
      }
      connect();
    }

    void send(Queued queued) {
      if (isReady()) {
        link.send(queued.data, queued.rank, queued.done);
      } else {
        queue.add(queued);
        connect();
      }
    }

    void failQueue(FluxCclException reason) {
      Queued queued;
      while ((queued = queue.poll()) != null) {
        queued.done.completeExceptionally(reason);
      }
    }

    private void connect() {
      if (connector == null && !job.hasEnded()) {
        connector = job.sockets.connect(to, job.messages.idOf(to), Resume.NONE, this);
      }
    }

    /** Uses the link that the peer has opened, unless this side opens one. */
    void adopt(Link opened) {
      if (!isReady() && connector == null) {
        use(opened);
      }
    }

    private void use(Link opened) {
      link = opened;
      backoff = new Backoff();
      JoinMessage message;
      while ((message = messages.poll()) != null) {
        link.send(message);
      }
      Queued queued;
      while ((queued = queue.poll()) != null) {
        link.send(queued.data, queued.rank, queued.done);
      }
      drained();
    }

    /** Returns whether nothing that must arrive waits for the connection. */
    boolean isIdle() {
      return nothingToSend()
          && messages.stream().noneMatch(Departed.class::isInstance)
          && (link == null || !link.isResuming());
    }

    private boolean nothingToSend() {
      queue.removeIf(queued -> queued.done.isDone());
      return queue.isEmpty();
    }

    @Override
    public void admitted(Channel channel, Handshake.Connector admitted) {
      connector = null;
      if (leaving && nothingToSend()) {
        channel.close();
        drained();
        return;
      }
      job.answered(to);
      Link opened = Link.connected(Links.this, channel, admitted);
      if (!to.equals(opened.peer)) {
        routes.computeIfAbsent(opened.peer, Route::new).adopt(opened);
      }
      use(opened);
    }

    @Override
    public void failed(Loss loss, String why) {
      trouble = why;
      if (loss == Loss.NO_DESCRIPTOR) {
        job.ranOut("can't connect to " + to + ": " + why);
      } else if (!loss.isGone()) {
        job.answered(to);
      } else if (isShared && loss.isForeign()) {
        job.refusedAt(to, why);
      } else {
        messages.clear();
      }
      again();
      if (loss.isGone() && !isShared) {
        job.refused(to);
      }
    }

    /** Retries while a message waits; messages of the join protocol are repeated anyway. */
    private void again() {
      if (!isShared) {
        messages.clear();
      }
      if ((messages.isEmpty() && nothingToSend()) || (flushed != null && nothingToSend())) {
        connector = null;
        drained();
        return;
      }
      backoff.schedule(job.sockets.loop, this::retry);
    }

    private void retry() {
      connector = null;
      if (!isReady() && !(messages.isEmpty() && nothingToSend())) {
        connect();
      }
    }
  }

  /** Returns whether an attempt to reach a process has ended, well or badly. */
  boolean hasAnswer(InetSocketAddress at) {
    return !troubleAt(at).equals(NO_ANSWER);
  }

  /** Returns why a process can't be reached, for messages. */
  String troubleAt(InetSocketAddress at) {
    Route route = routes.get(at);
    if (route == null) {
      return NO_ANSWER;
    }
    if (route.isReady()) {
      return "its process is in a group that is complete; does an earlier run still hold the port?";
    }
    // An attempt that has just begun says less than one that the other side has closed.
    boolean isClosing = route.trouble.equals(Handshake.CLOSED);
    return !isClosing && route.connector != null && route.connector.isUnanswered()
        ? Handshake.UNANSWERED
        : route.trouble;
  }

  // ---- processes that connect ----

  /**
   * Decides whether to admit an authenticated connector. Dump requests are always admitted.
   *
   * @return the decision, without its proof
   */
  Verdict judge(Proof proof) {
    Link present = incoming.get(proof.address());
    Admission admission = judge(proof, present);
    boolean resumes = proof.kind() == LinkKind.RESUME && admission == Admission.WELCOME;
    return new Verdict(
        admission,
        job.sockets.address,
        job.sockets.id,
        resumes ? present.received() : 0,
        BootstrapFrame.NO_BYTES);
  }

  private Admission judge(Proof proof, Link present) {
    if (proof.kind() == LinkKind.INQUIRY) {
      return Admission.WELCOME;
    }
    if (proof.target() != 0 && proof.target() != job.sockets.id) {
      return Admission.OTHER_PROCESS;
    }
    if (leaving) {
      return Admission.LEAVING;
    }
    if (proof.kind() == LinkKind.RESUME) {
      boolean isHere = present != null && present.canResume(proof.resume());
      return isHere ? Admission.WELCOME : Admission.NO_LINK;
    }
    boolean isTaken = present != null && present.isConnected() && present.peerId == proof.id();
    return isTaken || proof.id() == job.sockets.id ? Admission.DUPLICATE : Admission.WELCOME;
  }

  /** Replaces the handshake by a link, or by the answer to a dump request. */
  void admit(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    switch (proof.kind()) {
      case INQUIRY -> DumpClient.answer(channel, acceptor, job);
      case RESUME -> incoming.get(proof.address()).resume(channel, acceptor);
      case LINK -> {
        Link abandoned =
            incoming.put(proof.address(), Link.accepted(this, channel, acceptor, proof));
        if (abandoned != null) {
          abandoned.close();
        }
      }
    }
  }

  // ---- what links report ----

  boolean mayResume(InetSocketAddress peer) {
    return !leaving && !job.process.hasEnded(peer);
  }

  void attached(Link link) {
    routes.computeIfAbsent(link.peer, Route::new).adopt(link);
  }

  /** Handles a frame. Returns false if it may not arrive on a link. */
  boolean received(Link link, BootstrapFrame frame) {
    boolean isOfAnother = frame instanceof Join join && !join.member().address().equals(link.peer);
    if (isOfAnother) {
      return false;
    } else if (frame instanceof JoinMessage message) {
      job.received(link.peer, message);
    } else if (frame instanceof Data data) {
      job.received(link.peer, data);
    } else {
      return false;
    }
    return true;
  }

  /** The other side leaves the job in good order. */
  void left(Link link) {
    shut(link.peer, Link.unsent(FluxCclException.NO_RANK));
    job.left(link.peer);
  }

  /**
   * A link is over.
   *
   * @param isBroken frames may be lost, though both processes live
   */
  void ended(Link link, boolean isBroken) {
    if (link.incoming) {
      incoming.remove(link.peer, link);
    }
    Route route = routes.get(link.peer);
    if (route != null && route.link == link) {
      route.link = null;
    }
    if (isBroken) {
      job.messages.violated(link.peer, "it was lost and could not be resumed");
    }
    job.messages.linkEnded(link.peer);
    drained();
  }

  // ---- leaving ----

  /** Returns a future that completes when nothing waits for a connection. */
  CompletableFuture<Void> flush() {
    CompletableFuture<Void> done = new CompletableFuture<>();
    flushed = done;
    drained();
    return done;
  }

  void drained() {
    if (flushed != null
        && routes.entrySet().stream()
            .allMatch(
                each ->
                    each.getValue().isIdle()
                        // A handshake beside much other work takes longer than a silence.
                        || each.getValue().connector == null
                            && job.process.isSilent(each.getKey(), System.nanoTime()))) {
      CompletableFuture<Void> done = flushed;
      flushed = null;
      done.complete(null);
    }
  }

  /** Sends a goodbye on every link; the other sides close them. */
  void sendGoodbye() {
    stop(Link.unsent(FluxCclException.NO_RANK));
    forEachLink(Link::sendGoodbye);
  }

  /** Fails queued messages. From now on the loss of a link means nothing. */
  void stop(FluxCclException reason) {
    leaving = true;
    failQueues(reason);
  }

  /** Fails the queued messages of a group that has failed. */
  void failQueues(FluxCclException reason) {
    routes.values().forEach(each -> each.failQueue(reason));
  }

  /** Forgets processes that have ended. */
  void forgetAllBut(Set<InetSocketAddress> kept) {
    routes
        .values()
        .removeIf(
            each ->
                !each.isReady()
                    && each.connector == null
                    && each.nothingToSend()
                    && !kept.contains(each.to));
  }

  private void forEachLink(Consumer<Link> action) {
    List.copyOf(incoming.values()).forEach(action);
    for (Route each : List.copyOf(routes.values())) {
      if (each.link != null && !each.link.incoming) {
        action.accept(each.link);
      }
    }
  }
}
