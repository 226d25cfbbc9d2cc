package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** One attempt to connect and to get through the handshake. Exactly one outcome follows. */
final class HandshakeConnector extends SimpleChannelInboundHandler<BootstrapFrame> {
  private static final int ATTEMPT_MILLIS = 5000;

  private final SessionKey key;
  private final LinkKind kind;
  private final int rank;
  private final int nRanks;
  private final int target;
  private final Outcome outcome;
  private final byte[] nonce = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);

  private ScheduledFuture<?> deadline;
  private Proof proof;
  private byte[] acceptorNonce;
  private String trouble = "it closed the connection during the handshake; is the secret the same?";
  private boolean decided;

  HandshakeConnector(
      SessionKey key, LinkKind kind, int rank, int nRanks, int target, Outcome outcome) {
    this.key = key;
    this.kind = kind;
    this.rank = rank;
    this.nRanks = nRanks;
    this.target = target;
    this.outcome = outcome;
  }

  /** What came of it; called on the event loop, one of them, once. */
  interface Outcome {
    /** Both have proved themselves: put a handler in place of {@code connector}. */
    void welcomed(Channel channel, HandshakeConnector connector);

    /** The acceptor knows the secret and says no. */
    void refused(Admission admission, int detail);

    /** No connection, or no handshake. */
    void lost(String why);
  }

  /**
   * Begins the attempt.
   *
   * @param from the local address to use, or null for any
   * @param channels holds the socket while it is open
   */
  void connect(EventLoop loop, InetAddress from, InetSocketAddress to, ChannelGroup channels) {
    Bootstrap bootstrap =
        new Bootstrap()
            .group(loop)
            .channel(NioSocketChannel.class)
            .option(ChannelOption.TCP_NODELAY, true)
            .option(ChannelOption.AUTO_CLOSE, false)
            .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, ATTEMPT_MILLIS)
            .handler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel channel) {
                    channels.add(channel);
                    channel.pipeline().addLast(FrameDecoder.NAME, new FrameDecoder());
                    channel.pipeline().addLast(HandshakeConnector.this);
                  }
                });
    ChannelFuture connected =
        from == null
            ? bootstrap.connect(to)
            : bootstrap.connect(to, new InetSocketAddress(from, 0));
    connected.addListener(
        done -> {
          if (!done.isSuccess()) {
            lose(Frames.describe(done.cause()));
          }
        });
  }

  @Override
  public void channelActive(ChannelHandlerContext ctx) {
    deadline =
        ctx.executor()
            .schedule(
                () -> {
                  trouble = "no handshake within " + ATTEMPT_MILLIS + " ms";
                  ctx.close();
                },
                ATTEMPT_MILLIS,
                TimeUnit.MILLISECONDS);
  }

  @Override
  protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (frame instanceof Greeting greeting && proof == null) {
      acceptorNonce = greeting.nonce();
      byte[] mac = key.connectorProof(kind, rank, nRanks, target, acceptorNonce, nonce);
      proof = new Proof(kind, rank, nRanks, target, nonce, mac);
      Frames.write(ctx.channel(), proof);
    } else if (frame instanceof Verdict verdict && proof != null) {
      decide(ctx, verdict);
    } else {
      trouble = "unexpected " + frame.getClass().getSimpleName();
      ctx.close();
    }
  }

  private void decide(ChannelHandlerContext ctx, Verdict verdict) {
    byte[] expected =
        key.acceptorProof(proof, acceptorNonce, verdict.admission(), verdict.detail());
    if (!SessionKey.equal(expected, verdict.mac())) {
      trouble = "it does not know the secret";
      ctx.close();
      return;
    }
    decided = true;
    deadline.cancel(false);
    if (verdict.admission() == Admission.WELCOME) {
      outcome.welcomed(ctx.channel(), this);
    } else {
      ctx.close();
      outcome.refused(verdict.admission(), verdict.detail());
    }
  }

  private void lose(String why) {
    if (!decided) {
      decided = true;
      outcome.lost(why);
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    deadline.cancel(false);
    lose(trouble);
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
    trouble = Frames.describe(cause);
    ctx.close();
  }
}
