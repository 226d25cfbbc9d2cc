// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.tls.Tls;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.ssl.SslHandler;
import java.util.Optional;
import javax.net.ssl.SSLException;

/**
 * TLS of the bootstrap's sockets. Both sides' proofs of the job's secret contain the fingerprint of
 * the accepting side's certificate, each as that side knows it. So a man in the middle that
 * presents another certificate makes the proofs differ.
 */
final class TlsChannels {
  static final String NO_TLS =
      "it does not use TLS and this rank does; set FLUXCCL_TLS for all ranks or for none";
  private static final byte[] NONE = {};

  private TlsChannels() {}

  /**
   * Refuses settings of TLS that can't work.
   *
   * @throws InvalidUsage naming the variable, or the library that is missing
   */
  static void check() {
    Optional<String> missing = OptionalLibrary.NETTY_HANDLER.missingReason();
    if (Tls.fromEnvironment().isPresent() && missing.isPresent()) {
      throw new InvalidUsage(Tls.VARIABLE + "=1: " + missing.get());
    }
  }

  /** Puts TLS below all handlers of a channel, if this process uses it. On the event loop. */
  static void protect(Channel channel, boolean connects) {
    Tls.fromEnvironment()
        .ifPresent(
            tls -> {
              SslHandler handler = new SslHandler(connects ? tls.connecting() : tls.accepting());
              handler.setHandshakeTimeoutMillis(Handshake.LIMIT_MILLIS);
              channel.pipeline().addFirst(handler);
              if (!connects) {
                channel.pipeline().addFirst(new PlaintextGuard());
              }
            });
  }

  /**
   * Sends a connector without TLS an alert, from which it learns at once that this side uses TLS.
   */
  private static final class PlaintextGuard extends ChannelInboundHandlerAdapter {
    private static final int HANDSHAKE_RECORD = 0x16;

    /** The fatal alert protocol_version, in a record of TLS 1.2. */
    private static final byte[] ALERT = {0x15, 3, 3, 0, 2, 2, 70};

    @Override
    public void channelRead(ChannelHandlerContext ctx, Object first) {
      ByteBuf bytes = (ByteBuf) first;
      if (bytes.getUnsignedByte(bytes.readerIndex()) == HANDSHAKE_RECORD) {
        ctx.pipeline().remove(this);
        ctx.fireChannelRead(first);
      } else {
        bytes.release();
        ctx.writeAndFlush(Unpooled.wrappedBuffer(ALERT));
        ctx.fireExceptionCaught(new SSLException(NO_TLS));
      }
    }
  }

  /** Returns the fingerprint of the accepting side's certificate; nothing without TLS. */
  static byte[] fingerprint(Channel channel, boolean connects) throws SSLException {
    Optional<Tls> tls = Tls.fromEnvironment();
    if (tls.isEmpty() || channel.pipeline().get(SslHandler.class) == null) {
      return NONE;
    }
    return connects
        ? Tls.peerFingerprint(channel.pipeline().get(SslHandler.class).engine())
        : tls.get().fingerprint();
  }
}
