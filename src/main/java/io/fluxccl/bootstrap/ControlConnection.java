package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A rank's connection with the root: tried until it works, then kept open as the sign of life. Only
 * on the event loop.
 */
final class ControlConnection implements Handshake.Outcome {
  private static final long FIRST_BACKOFF_MILLIS = 10;
  private static final long MAX_BACKOFF_MILLIS = 200;
  private static final int SHOWN_RANKS = 16;

  private final TcpBootstrap bootstrap;
  private final Rendezvous rendezvous;
  private final Owner owner;

  private Session session;
  private boolean formed;
  private boolean stopped;
  private long backoffMillis = FIRST_BACKOFF_MILLIS;
  private List<Integer> missing = List.of();
  private String trouble = "no answer yet";

  ControlConnection(TcpBootstrap bootstrap, Rendezvous rendezvous, Owner owner) {
    this.bootstrap = bootstrap;
    this.rendezvous = rendezvous;
    this.owner = owner;
  }

  /** Receives what the connection reports. */
  interface Owner {
    /** Opens the port for the other ranks, if it is not open yet, and describes this rank. */
    CompletableFuture<Register> register(InetAddress local);

    /** All ranks have registered. */
    void formed(Peers peers);

    /** This rank can't take part. */
    void refused(FluxCclException reason);

    /** These ranks answer no heartbeat. */
    void silent(List<Integer> ranks);

    /** The root is gone, in good order or not. */
    void rootGone(boolean orderly);
  }

  void connect() {
    if (!stopped) {
      new Handshake.Connector(
              rendezvous.key(), LinkKind.ROOT, bootstrap.rank(), bootstrap.nRanks(), -1, this)
          .connect(bootstrap.loop, rendezvous.from(), rendezvous.root(), bootstrap.channels());
    }
  }

  @Override
  public void welcomed(Channel channel, Handshake.Connector connector) {
    if (stopped) {
      channel.close();
      return;
    }
    trouble = "it answered and closed the connection";
    session = new Session(channel);
    session.replace(connector, BootstrapFrameCodec.CONTROL_LIMIT);
    owner
        .register(((InetSocketAddress) channel.localAddress()).getAddress())
        .whenComplete(
            (register, failure) -> {
              if (failure != null) {
                owner.refused(FluxCclException.from(failure));
              } else {
                send(register);
              }
            });
  }

  @Override
  public void refused(Admission admission, int expectedRanks) {
    if (admission == Admission.WRONG_RANK_COUNT || admission == Admission.RANK_OUT_OF_RANGE) {
      owner.refused(
          InvalidUsage.of(
              "%s is refused: the root at %s gathers %s ranks",
              bootstrap.describe(), rendezvous.root(), expectedRanks));
    } else if (admission == Admission.DUPLICATE_RANK) {
      again("another process has joined as rank " + bootstrap.rank());
    } else {
      again("its job is complete; does an earlier run still hold the port?");
    }
  }

  @Override
  public void lost(String why) {
    again(why);
  }

  private void again(String why) {
    trouble = why;
    if (!stopped) {
      bootstrap.loop.schedule(this::connect, backoffMillis, TimeUnit.MILLISECONDS);
      backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
    }
  }

  /** Returns why set-up has not come further. */
  Timeout late(long millis) {
    if (missing.isEmpty()) {
      int rootRank = rendezvous.rootRank();
      return Timeout.of(
          rootRank == bootstrap.rank() ? Timeout.NO_RANK : rootRank,
          "%s: initialize did not get through to the root at %s within %s ms: %s",
          bootstrap.describe(),
          rendezvous.root(),
          millis,
          trouble);
    }
    return Timeout.of(
        missing.get(0),
        "%s: initialize: of the ranks, %s had not come to the root at %s within %s ms;"
            + " were all processes started, with the same address and secret?",
        bootstrap.describe(),
        describe(missing),
        rendezvous.root(),
        millis);
  }

  private static String describe(List<Integer> ranks) {
    int more = ranks.size() - SHOWN_RANKS;
    return more <= 0 ? ranks.toString() : ranks.subList(0, SHOWN_RANKS) + " and " + more + " more";
  }

  void send(BootstrapFrame frame) {
    if (session != null) {
      session.send(frame);
    }
  }

  /** Sends the last frame and connects no more; the root closes the socket. */
  void sendGoodbye() {
    if (session != null) {
      session.sendGoodbye();
    }
    stop();
  }

  /** From now on the loss of the connection is no failure. */
  void stop() {
    stopped = true;
  }

  /** Whether the root was not heard of since a moment of {@link System#nanoTime()}. */
  boolean isSilentSince(long nanos) {
    return formed && session.isSilentSince(nanos);
  }

  /** Forgets how long the root was silent: this process itself was not running. */
  void excuseSilence() {
    session.excuseSilence();
  }

  private void receivedPeers(ChannelHandlerContext ctx, Peers peers) {
    if (stopped) {
      return; // it crossed the goodbye: what begins now would never end
    }
    if (formed || peers.members().size() != bootstrap.nRanks()) {
      ctx.close();
      return;
    }
    formed = true;
    missing = List.of();
    owner.formed(peers);
  }

  private final class Session extends FrameSession {
    Session(Channel channel) {
      super(channel);
    }

    @Override
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Ping) {
        send(new Pong());
      } else if (frame instanceof Waiting waiting) {
        missing = waiting.missing();
      } else if (frame instanceof Peers peers) {
        receivedPeers(ctx, peers);
      } else if (frame instanceof Silent silent) {
        owner.silent(silent.ranks());
      } else if (frame instanceof Departed departed) {
        departed.ranks().forEach(bootstrap::departed);
      } else if (frame instanceof Failed failed) {
        bootstrap.fail(failed.toException());
      } else {
        ctx.close();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      if (!stopped && formed) {
        owner.rootGone(receivedGoodbye());
      } else if (!stopped) {
        again(trouble);
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      trouble = Frames.describe(cause);
      ctx.close();
    }
  }
}
