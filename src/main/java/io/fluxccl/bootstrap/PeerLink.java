// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A connection between two ranks after the handshake. Messages go both ways, unless both ranks
 * connected at the same time: then each sends on its own connection. Only on the event loop.
 */
final class PeerLink extends ResumingSession {
  private final PeerLinks links;
  private final int peer;
  private final boolean incoming;
  private boolean attached;

  /**
   * @param id the connector's nonce
   */
  PeerLink(PeerLinks links, int peer, boolean incoming, byte[] id, Channel channel) {
    super(id, channel);
    this.links = links;
    this.peer = peer;
    this.incoming = incoming;
  }

  int peer() {
    return peer;
  }

  boolean incoming() {
    return incoming;
  }

  /** Whether both sides have completed the handshake. */
  boolean isAttached() {
    return attached;
  }

  /** Returns whether losing this connection does not mean that the peer has died. */
  boolean orderly() {
    return receivedGoodbye() || sentGoodbye() || !attached;
  }

  private void attach() {
    attached = true;
    write(new Attach());
  }

  @Override
  void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (frame instanceof Data data && attached) {
      links.bootstrap.arrived(data.key(peer), data.message());
    } else if (frame instanceof Attach && incoming && !attached) {
      attached = true;
      links.attached(this);
    } else if (frame instanceof Failed failed) {
      links.bootstrap.fail(failed.toException());
    } else if (frame instanceof Departed departed) {
      departed.ranks().forEach(links.bootstrap::departed);
    } else {
      violated(ctx, "unexpected " + frame.getClass().getSimpleName());
    }
  }

  @Override
  void departed() {
    links.bootstrap.departed(peer);
  }

  private void violated(ChannelHandlerContext ctx, String problem) {
    if (attached && !receivedGoodbye() && ctx.channel().isOpen()) {
      links.bootstrap.fail(
          TransportFailure.of(peer, "the connection with rank %s is unusable: %s", peer, problem));
    }
    ctx.close();
  }

  @Override
  boolean mayResume() {
    return !receivedGoodbye() && !links.isLeaving() && !links.bootstrap.hasDeparted(peer);
  }

  @Override
  void reconnectOrProbe() {
    if (incoming) {
      links.probe(peer, this::later, this::end);
    } else {
      links.connect(LinkKind.RESUME, peer, this);
    }
  }

  @Override
  void ended() {
    links.closed(this);
  }

  @Override
  void resumed() {
    links.queueDrained();
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    if (cause instanceof IOException) {
      super.exceptionCaught(ctx, cause); // what it means is decided when the channel has closed
    } else {
      violated(ctx, Frames.describe(cause));
    }
  }

  /**
   * The connection to one peer: opened when it is first needed, and retried while a message waits
   * for it.
   */
  static final class Outgoing implements Handshake.Outcome {
    private static final long FIRST_BACKOFF_MILLIS = 10;
    private static final long MAX_BACKOFF_MILLIS = 200;

    private final PeerLinks links;
    private final int peer;
    private final ArrayDeque<Queued> queue = new ArrayDeque<>();
    private PeerLink link;
    private boolean connecting;
    private boolean shut;
    private long backoffMillis = FIRST_BACKOFF_MILLIS;
    private long keepTryingUntil = System.nanoTime();

    Outgoing(PeerLinks links, int peer) {
      this.links = links;
      this.peer = peer;
    }

    private record Queued(Data data, CompletableFuture<Void> done) {}

    /** Returns the connection, or null. */
    PeerLink link() {
      return link;
    }

    void send(Data data, CompletableFuture<Void> done) {
      if (shut) {
        done.completeExceptionally(unsent(peer));
      } else if (link != null) {
        link.send(data, peer, done);
      } else {
        queue.add(new Queued(data, done));
        connect();
      }
    }

    /** Connects without a message to send, and retries for {@code nanos}. */
    void open(long nanos) {
      keepTryingUntil = System.nanoTime() + nanos;
      if (link == null && !shut) {
        connect();
      }
    }

    /** Uses the connection that the peer has opened, unless this side opens one. */
    void adopt(PeerLink opened) {
      if (link == null && !connecting && !shut) {
        link = opened;
      }
    }

    /** Returns whether nothing waits for the connection. */
    boolean idle() {
      return !connecting && nothingToSend() && (link == null || !link.isResuming());
    }

    private boolean nothingToSend() {
      queue.removeIf(queued -> queued.done.isDone());
      return queue.isEmpty();
    }

    /** Fails queued messages and sends no more: the peer has left, or this rank leaves. */
    void shut(FluxCclException reason) {
      shut = true;
      Queued queued;
      while ((queued = queue.poll()) != null) {
        queued.done.completeExceptionally(reason);
      }
    }

    private void connect() {
      if (!connecting) {
        connecting = true;
        links.connect(LinkKind.PEER, peer, this);
      }
    }

    @Override
    public void admitted(Channel channel, Handshake.Connector connector) {
      connecting = false;
      if (shut) {
        channel.close();
        return;
      }
      link = new PeerLink(links, peer, false, connector.nonce, channel);
      link.replace(connector, links.frameLimit);
      link.attach();
      Queued queued;
      while ((queued = queue.poll()) != null) {
        link.send(queued.data, peer, queued.done);
      }
      links.queueDrained();
    }

    @Override
    public void refused(Admission admission, int expectedRanks) {
      again();
    }

    @Override
    public void lost(String why) {
      again();
    }

    @Override
    public void ranOut(String why) {
      TcpBootstrap bootstrap = links.bootstrap;
      String text = bootstrap.describe() + " can't connect to rank " + peer + ": " + why;
      bootstrap.fail(new TransportFailure(bootstrap.rank(), text));
      again();
    }

    private void again() {
      boolean late = links.isFlushing() || System.nanoTime() - keepTryingUntil >= 0;
      if (shut || (late && nothingToSend())) {
        connecting = false;
        links.queueDrained();
        links.unreachable(peer);
        return;
      }
      links.bootstrap.loop.schedule(this::retry, backoffMillis, TimeUnit.MILLISECONDS);
      backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
    }

    private void retry() {
      connecting = false;
      if (!shut) {
        connect();
      }
    }
  }
}
