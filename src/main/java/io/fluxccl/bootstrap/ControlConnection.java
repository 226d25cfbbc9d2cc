package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A rank's connection with the root: tried until it works, kept open as the sign of life. Only on
 * the event loop.
 */
final class ControlConnection implements HandshakeConnector.Outcome {
  private static final long FIRST_BACKOFF_MILLIS = 10;
  private static final long MAX_BACKOFF_MILLIS = 200;

  private final TcpBootstrap bootstrap;
  private final MeetingPoint meeting;
  private final InetSocketAddress root;
  private final Owner owner;

  private Channel channel;
  private boolean formed;
  private boolean stopped;
  private boolean saidGoodbye;
  private boolean heardGoodbye;
  private long backoffMillis = FIRST_BACKOFF_MILLIS;
  private long lastHeardNanos;
  private List<Integer> missing = List.of();
  private String trouble = "no answer yet";

  ControlConnection(TcpBootstrap bootstrap, MeetingPoint meeting, Owner owner) {
    this.bootstrap = bootstrap;
    this.meeting = meeting;
    this.root = meeting.root();
    this.owner = owner;
  }

  /** Who hears of it. */
  interface Owner {
    /** Opens the port for the other ranks, if it is not open yet. */
    CompletableFuture<Register> listen(InetAddress local);

    void formed(Peers peers);

    void refused(FluxCclException reason);

    void silent(List<Integer> ranks);

    /** The root is gone, in good order or not. */
    void rootGone(boolean orderly);
  }

  void connect() {
    if (!stopped) {
      new HandshakeConnector(
              meeting.key(), LinkKind.ROOT, bootstrap.rank(), bootstrap.nRanks(), -1, this)
          .connect(bootstrap.loop, meeting.from(), root, bootstrap.channels());
    }
  }

  @Override
  public void welcomed(Channel connected, HandshakeConnector connector) {
    if (stopped) {
      connected.close();
      return;
    }
    channel = connected;
    lastHeardNanos = System.nanoTime();
    trouble = "it answered and went";
    Frames.raiseLimit(connected, BootstrapFrameCodec.CONTROL_LIMIT);
    connected.pipeline().replace(connector, "control", new Handler());
    owner
        .listen(((InetSocketAddress) connected.localAddress()).getAddress())
        .whenComplete(
            (register, failure) -> {
              if (failure != null) {
                owner.refused(FluxCclException.from(failure));
              } else {
                tell(register);
              }
            });
  }

  @Override
  public void refused(Admission admission, int detail) {
    String asked = bootstrap.describe();
    if (admission == Admission.WRONG_RANK_COUNT || admission == Admission.RANK_OUT_OF_RANGE) {
      owner.refused(
          new InvalidUsage(
              asked + " is refused: the root at " + root + " gathers " + detail + " ranks"));
      return;
    }
    again(
        admission == Admission.DUPLICATE_RANK
            ? "another process has come as rank " + bootstrap.rank()
            : "its job is complete; does an earlier run still hold the port?");
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

  /** Why set-up has not come further. */
  Timeout late(long millis) {
    String within = " within " + millis + " ms";
    if (missing.isEmpty()) {
      return new Timeout(
          meeting.rootRank() == bootstrap.rank() ? Timeout.NO_RANK : meeting.rootRank(),
          bootstrap.describe()
              + ": initialize did not get through to the root at "
              + root
              + within
              + ": "
              + trouble);
    }
    return new Timeout(
        missing.get(0),
        bootstrap.describe()
            + ": initialize: of the ranks, "
            + describe(missing)
            + " had not come to the root at "
            + root
            + within
            + "; were all processes started, with the same address and secret?");
  }

  private static String describe(List<Integer> ranks) {
    int shown = Math.min(ranks.size(), 16);
    return ranks.subList(0, shown)
        + (shown < ranks.size() ? " and " + (ranks.size() - shown) + " more" : "");
  }

  void tell(BootstrapFrame news) {
    if (channel != null && channel.isActive() && !saidGoodbye) {
      Frames.write(channel, news);
    }
  }

  /** Sends the last frame and tries no more; the root closes. */
  void sayGoodbye() {
    tell(new Goodbye());
    saidGoodbye = true;
    stopped = true;
  }

  /** From now on the socket may close as it likes. */
  void sayNothing() {
    saidGoodbye = true;
    stopped = true;
  }

  /** Whether the root has been heard of since, in {@link System#nanoTime()}. */
  boolean isSilentSince(long nanos) {
    return formed && !heardGoodbye && channel.isActive() && lastHeardNanos - nanos < 0;
  }

  /** Forgets how long the root was silent: this rank itself was not running. */
  void excuseSilence() {
    lastHeardNanos = System.nanoTime();
  }

  private final class Handler extends SimpleChannelInboundHandler<BootstrapFrame> {
    @Override
    protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
      lastHeardNanos = System.nanoTime();
      if (frame instanceof Ping) {
        tell(new Pong());
      } else if (frame instanceof Waiting waiting) {
        missing = waiting.missing();
      } else if (frame instanceof Peers peers && !formed) {
        if (stopped) {
          return; // it crossed the goodbye: nobody would end what begins now
        }
        if (peers.members().size() == bootstrap.nRanks()) {
          formed = true;
          missing = List.of();
          owner.formed(peers);
        } else {
          ctx.close();
        }
      } else if (frame instanceof Silent silent) {
        owner.silent(silent.ranks());
      } else if (frame instanceof Departed departed) {
        departed.ranks().forEach(bootstrap::departed);
      } else if (frame instanceof Failed failed) {
        bootstrap.fail(failed.toException());
      } else if (frame instanceof Goodbye) {
        heardGoodbye = true;
        ctx.close();
      } else {
        ctx.close();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      if (stopped) {
        return;
      }
      if (formed) {
        owner.rootGone(heardGoodbye);
      } else {
        heardGoodbye = false;
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
