package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.netty.channel.Channel;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The way to one peer: opened when it is first needed, tried again while something waits for it.
 * Only on the event loop.
 */
final class OutgoingLink {
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

  OutgoingLink(PeerLinks links, int peer) {
    this.links = links;
    this.peer = peer;
  }

  private record Queued(StreamKey key, Message message, CompletableFuture<Void> done) {}

  /** The connection, or null. */
  PeerLink link() {
    return link;
  }

  void send(StreamKey key, Message message, CompletableFuture<Void> done) {
    Queued queued = new Queued(key, message, done);
    if (shut) {
      done.completeExceptionally(gone());
    } else if (link != null) {
      write(queued);
    } else {
      queue.add(queued);
      connect();
    }
  }

  /** Connects without having anything to send, trying for so long. */
  void open(long nanos) {
    keepTryingUntil = System.nanoTime() + nanos;
    if (link == null && !shut) {
      connect();
    }
  }

  /** Whether nothing waits for the connection. */
  boolean idle() {
    queue.removeIf(queued -> queued.done.isDone());
    return queue.isEmpty();
  }

  /** The peer is gone, or this rank goes: sends no more. */
  void shut(FluxCclException reason) {
    shut = true;
    Queued queued;
    while ((queued = queue.poll()) != null) {
      queued.done.completeExceptionally(reason);
    }
  }

  private void connect() {
    if (connecting) {
      return;
    }
    connecting = true;
    links.dial(
        peer,
        new HandshakeConnector.Outcome() {
          @Override
          public void welcomed(Channel channel, HandshakeConnector connector) {
            connected(channel, connector);
          }

          @Override
          public void refused(Admission admission, int detail) {
            again();
          }

          @Override
          public void lost(String why) {
            again();
          }
        });
  }

  private void connected(Channel channel, HandshakeConnector connector) {
    connecting = false;
    if (shut) {
      channel.close();
      return;
    }
    link = new PeerLink(links, peer, false, channel);
    channel.pipeline().replace(connector, "link", link);
    Frames.raiseLimit(channel, BootstrapFrameCodec.CONTROL_LIMIT);
    link.attach();
    links.attached(link);
    Queued queued;
    while ((queued = queue.poll()) != null) {
      write(queued);
    }
    links.queueDrained();
  }

  private void again() {
    connecting = false;
    if (shut || (idle() && System.nanoTime() - keepTryingUntil >= 0)) {
      links.queueDrained();
      return;
    }
    connecting = true;
    links.loop().schedule(this::retry, backoffMillis, TimeUnit.MILLISECONDS);
    backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
  }

  private void retry() {
    connecting = false;
    if (!shut) {
      connect();
    }
  }

  private void write(Queued queued) {
    link.send(queued.key, queued.message)
        .addListener(
            written -> {
              if (written.isSuccess()) {
                queued.done.complete(null);
              } else {
                queued.done.completeExceptionally(gone());
              }
            });
  }

  private RemoteFailure gone() {
    return new RemoteFailure(peer, "rank " + peer + " is gone; nothing more can be sent to it");
  }
}
