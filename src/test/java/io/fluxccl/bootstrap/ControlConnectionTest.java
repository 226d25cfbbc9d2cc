// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** A rank's connection with a root of the test's own. */
class ControlConnectionTest {
  private static final byte[] SECRET = SessionKey.nonce(UniqueId.SECRET_LENGTH);
  private static final InetSocketAddress ANY_PORT =
      new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
  private static final Member MEMBER =
      new Member(new InetSocketAddress(InetAddress.getLoopbackAddress(), 1), 1, 1);

  /** The member list and the leave notice may be in flight at the same time. */
  @Test
  void shouldIgnoreTheMemberListAfterItsLeaveNotice() {
    try (TcpBootstrap rank = TcpBootstrap.create(0, 2, BootstrapOptions.defaults())) {
      LateRoot root = new LateRoot();
      rank.initialize(UniqueId.of(root.open(rank), SECRET));
      await(root.registered);
      CompletableFuture<Void> gone = new CompletableFuture<>();
      rank.operations.onLoop(
          () -> {
            rank.channels()
                .newCloseFuture(
                    channel -> channel.pipeline().get("session") instanceof FrameSession)
                .addListener(closed -> gone.complete(null));
            rank.control.sendGoodbye();
          });
      await(gone);
      assertThat(rank.control.formed()).isFalse();
      rank.channels().close();
    }
  }

  /** A root that sends the member list only when it receives the leave notice. */
  private static final class LateRoot extends Gate {
    final CompletableFuture<Void> registered = new CompletableFuture<>();

    InetSocketAddress open(TcpBootstrap on) {
      Channel listener = await(Frames.listen(on.loop, ANY_PORT, this, on.channels(), "root", 0));
      return (InetSocketAddress) listener.localAddress();
    }

    @Override
    CompletableFuture<SessionKey> key() {
      return CompletableFuture.completedFuture(SessionKey.of(SECRET));
    }

    @Override
    Admission judge(Proof proof) {
      return Admission.WELCOME;
    }

    @Override
    int expectedRanks() {
      return 2;
    }

    @Override
    void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
      Frames.raiseLimit(channel, BootstrapFrameCodec.CONTROL_LIMIT);
      channel.pipeline().replace(acceptor, "root session", new Session());
    }

    private final class Session extends SimpleChannelInboundHandler<BootstrapFrame> {
      @Override
      protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
        if (frame instanceof Register) {
          registered.complete(null);
        } else if (frame instanceof Goodbye) {
          byte[] jobId = SessionKey.nonce(BootstrapFrameCodec.JOB_ID_BYTES);
          ctx.channel().writeAndFlush(new Peers(jobId, -1, "", List.of(MEMBER, MEMBER)));
          ctx.close();
        }
      }
    }
  }
}
