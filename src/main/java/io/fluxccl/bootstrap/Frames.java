// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.SessionKey.FrameMac;
import io.fluxccl.concurrent.RecurringWarning;
import io.fluxccl.tls.Tls;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.codec.LengthFieldPrepender;
import io.netty.handler.codec.MessageToMessageEncoder;
import io.netty.handler.ssl.SslHandler;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import org.slf4j.LoggerFactory;

/**
 * Sockets that carry {@link BootstrapFrame}s, each preceded by its length in 4 bytes, big endian.
 */
final class Frames {
  static final int LENGTH_BYTES = 4;

  private static final int BACKLOG = 1024;
  private static final ChannelHandler PREPENDER = new LengthFieldPrepender(LENGTH_BYTES);

  private Frames() {}

  /**
   * Listens. Every accepted socket begins with the handshake.
   *
   * @param channels holds the sockets while they are open
   * @param owner listens, for the error
   * @param rank the owner's rank, or {@link TransportFailure#NO_RANK}
   * @return completes on the event loop with the listening socket, or with {@link TransportFailure}
   */
  static CompletableFuture<Channel> listen(
      EventLoop loop,
      InetSocketAddress address,
      Links links,
      ChannelGroup channels,
      String owner,
      int rank) {
    CompletableFuture<Channel> listening = new CompletableFuture<>();
    new ServerBootstrap()
        .group(loop)
        .channel(NioServerSocketChannel.class)
        .option(ChannelOption.SO_BACKLOG, BACKLOG)
        .option(ChannelOption.SO_REUSEADDR, true)
        .childOption(ChannelOption.TCP_NODELAY, true)
        .childOption(ChannelOption.AUTO_CLOSE, false)
        .handler(initializer(channels, channel -> {}))
        .childHandler(pipeline(channels, false, () -> new Handshake.Acceptor(links)))
        .bind(address)
        .addListener(
            (ChannelFuture bound) -> {
              if (bound.isSuccess()) {
                bound.channel().pipeline().addLast(new AcceptTrouble(links));
                listening.complete(bound.channel());
                return;
              }
              String problem =
                  Text.of(
                      "%s can't listen at %s: %s",
                      owner,
                      address,
                      OpenFiles.explain(
                          bound.cause(),
                          describe(bound.cause())
                              + "; choose a free port and an address of this host"));
              TransportFailure failure = new TransportFailure(rank, problem, bound.cause());
              onLoop(loop, () -> listening.completeExceptionally(failure));
            });
    return listening;
  }

  /**
   * Runs a task on the event loop. Netty reports on another thread that a socket could not be made.
   */
  static void onLoop(EventLoop loop, Runnable task) {
    if (loop.inEventLoop()) {
      task.run();
    } else {
      loop.execute(task);
    }
  }

  /**
   * Connects.
   *
   * @param from the local address to use, or null for any
   * @param channels holds the socket while it is open
   * @param handshake reads the frames
   */
  static ChannelFuture connect(
      EventLoop loop,
      InetAddress from,
      InetSocketAddress to,
      ChannelGroup channels,
      Handshake.Connector handshake) {
    return new Bootstrap()
        .group(loop)
        .channel(NioSocketChannel.class)
        .option(ChannelOption.TCP_NODELAY, true)
        .option(ChannelOption.AUTO_CLOSE, false)
        .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, Handshake.LIMIT_MILLIS)
        .handler(pipeline(channels, true, () -> handshake))
        .connect(to, from == null ? null : new InetSocketAddress(from, 0));
  }

  /**
   * Returns whether no process listens at an address. A time-out, also a {@code ConnectException},
   * does not prove it.
   */
  static boolean isRefused(Throwable cause) {
    return cause instanceof ConnectException
        && !(cause instanceof ConnectTimeoutException)
        && String.valueOf(cause.getMessage()).contains("refused");
  }

  /** Returns whether the other side, which had accepted a connection, has reset it. */
  static boolean isReset(Throwable cause) {
    return cause instanceof IOException && String.valueOf(cause.getMessage()).contains("reset");
  }

  private static ChannelInitializer<Channel> pipeline(
      ChannelGroup channels, boolean connects, Supplier<ChannelHandler> handshake) {
    return initializer(
        channels,
        channel -> {
          channel.pipeline().addLast(new Decoder(), PREPENDER, new Encoder(), handshake.get());
          TlsChannels.protect(channel, connects);
        });
  }

  private static ChannelInitializer<Channel> initializer(
      ChannelGroup channels, Consumer<Channel> initialize) {
    return new ChannelInitializer<>() {
      @Override
      protected void initChannel(Channel channel) {
        channels.add(channel); // before it is bound or connected: it may have to be closed earlier
        initialize.accept(channel);
      }
    };
  }

  /** Raises the frame limit of a channel whose other side is trusted. On the event loop. */
  static void raiseLimit(Channel channel, int limit) {
    channel.pipeline().get(Decoder.class).limit = limit;
  }

  /** Returns when the last bytes arrived, including those of an incomplete frame. */
  static long lastReceivedNanos(Channel channel) {
    return channel.pipeline().get(Decoder.class).receivedNanos;
  }

  /**
   * Authenticates frames that are sent from now on, unless {@code mac} is null. On the event loop.
   */
  static void sign(Channel channel, FrameMac mac) {
    channel.pipeline().get(Encoder.class).mac = mac;
  }

  /**
   * Refuses, from now on, frames that are not authentic, unless {@code mac} is null. On the event
   * loop.
   */
  static void verify(Channel channel, FrameMac mac) {
    channel.pipeline().get(Decoder.class).mac = mac;
  }

  /** Returns a cause in words, without the wrapping of the decoder. */
  static String describe(Throwable cause) {
    Throwable inner =
        cause instanceof DecoderException && cause.getCause() != null ? cause.getCause() : cause;
    String text = inner.getMessage() == null ? inner.toString() : inner.getMessage();
    if (inner.getClass().getSimpleName().equals("NotSslRecordException")) {
      return TlsChannels.NO_TLS; // of Netty, whose handler of TLS may be missing
    }
    return inner instanceof SSLHandshakeException
        ? text + "; set the same FLUXCCL_TLS_AUTHORITIES, with certificates of these, for all ranks"
        : OpenFiles.explain(inner, text);
  }

  /** Returns whether the versions, TLS settings or certificates of the two sides differ. */
  static boolean isMismatch(Throwable cause) {
    return cause instanceof DecoderException || cause instanceof SSLException;
  }

  /** Reports that a listener can't accept; Netty tries again after a second. */
  private static final class AcceptTrouble extends ChannelInboundHandlerAdapter {
    private static final RecurringWarning WARNING =
        new RecurringWarning(LoggerFactory.getLogger(Frames.class));

    private final Links links;

    AcceptTrouble(Links links) {
      this.links = links;
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
      WARNING.warn("no connection accepted at " + ctx.channel() + ": " + describe(cause));
      if (OpenFiles.ranOut(cause)) {
        links.job.ranOut("can't accept connections: " + describe(cause));
      }
    }
  }

  /** The other side began with bytes that are no length of a FluxCCL frame. */
  static final class ForeignBytes extends DecoderException {
    private static final long serialVersionUID = 1L;
    private static final int MAX_SHOWN = 40;

    /** The first two bytes of a TLS handshake record. */
    private static final int TLS_HANDSHAKE = 0x1603;

    /** The first two bytes of a TLS alert record. */
    private static final int TLS_ALERT = 0x1503;

    private static final int MAX_SHOWN_HEX = 8;

    ForeignBytes(ByteBuf sent) {
      super(
          new TransportFailure(
              TransportFailure.NO_RANK,
              isTls(sent)
                  ? "it uses TLS and this rank does not; set FLUXCCL_TLS for all ranks or for none"
                  : Text.of("it does not speak FluxCCL's protocol (it sent %s)", show(sent))
                      + "; another service has this port"));
    }

    private static boolean isTls(ByteBuf sent) {
      int type = sent.readableBytes() > 1 ? sent.getUnsignedShort(sent.readerIndex()) : 0;
      return type == TLS_HANDSHAKE || type == TLS_ALERT;
    }

    /** Returns the first line as a text, or the first bytes as hex digits if it is none. */
    private static String show(ByteBuf sent) {
      int begin = sent.readerIndex();
      int length = Math.min(sent.readableBytes(), MAX_SHOWN);
      String line = sent.toString(begin, length, StandardCharsets.ISO_8859_1).split("[\r\n]", 2)[0];
      return !line.isEmpty() && line.chars().allMatch(c -> c >= ' ' && c < 0x7f)
          ? '"' + line + '"'
          : "0x" + ByteBufUtil.hexDump(sent, begin, Math.min(length, MAX_SHOWN_HEX));
    }
  }

  /**
   * Cuts the bytes of a socket into frames. A length over the limit, which is small until the other
   * side has proved that it knows the secret, is refused before anything is allocated for it.
   */
  static final class Decoder extends LengthFieldBasedFrameDecoder {
    private int limit;
    private boolean began;
    private boolean broken;
    private FrameMac mac;
    private long receivedNanos = System.nanoTime();

    Decoder() {
      this(BootstrapFrameCodec.HANDSHAKE_LIMIT);
    }

    Decoder(int limit) {
      super(Integer.MAX_VALUE, 0, LENGTH_BYTES, 0, LENGTH_BYTES);
      this.limit = limit;
    }

    @Override
    protected Object decode(ChannelHandlerContext ctx, ByteBuf in) throws Exception {
      if (broken) {
        // Bytes after a malformed frame are discarded, though the socket may close only later.
        in.skipBytes(in.readableBytes());
        return null;
      }
      broken = true;
      ByteBuf frame = (ByteBuf) super.decode(ctx, in);
      try {
        BootstrapFrame decoded =
            frame == null
                ? null
                : BootstrapFrameCodec.decode(mac == null ? frame : verified(frame));
        broken = false;
        began |= decoded != null;
        return decoded;
      } finally {
        if (frame != null) {
          frame.release();
        }
      }
    }

    @Override
    public void channelRead(ChannelHandlerContext ctx, Object bytes) throws Exception {
      receivedNanos = System.nanoTime();
      super.channelRead(ctx, bytes);
    }

    private ByteBuf verified(ByteBuf frame) {
      int length = frame.readableBytes() - FrameMac.BYTES;
      if (length <= 0) {
        throw BootstrapFrameCodec.malformed("no authentication code");
      }
      ByteBuf body = frame.readSlice(length);
      byte[] code = new byte[FrameMac.BYTES];
      frame.readBytes(code);
      if (!SessionKey.equal(mac.next(body), code)) {
        throw BootstrapFrameCodec.malformed("wrong authentication code");
      }
      return body;
    }

    @Override
    protected long getUnadjustedFrameLength(ByteBuf in, int offset, int length, ByteOrder order) {
      long frameLength = super.getUnadjustedFrameLength(in, offset, length, order);
      if (frameLength < 1 || frameLength > limit + (mac == null ? 0 : FrameMac.BYTES)) {
        if (!began) {
          throw new ForeignBytes(in);
        }
        throw BootstrapFrameCodec.malformed("length=" + frameLength + ", limit=" + limit);
      }
      return frameLength;
    }
  }

  private static final class Encoder extends MessageToMessageEncoder<BootstrapFrame> {
    private FrameMac mac;

    Encoder() {
      super(BootstrapFrame.class);
    }

    @Override
    protected void encode(ChannelHandlerContext ctx, BootstrapFrame frame, List<Object> out) {
      ByteBuf body = BootstrapFrameCodec.encode(frame);
      out.add(mac == null ? body : Unpooled.wrappedBuffer(body, code(body)));
    }

    private ByteBuf code(ByteBuf body) {
      return Unpooled.wrappedBuffer(mac.next(body));
    }
  }

  /**
   * TLS of the bootstrap's sockets. Both sides' proofs of the job's secret contain the fingerprint
   * of the accepting side's certificate, each as that side knows it. So a man in the middle that
   * presents another certificate makes the proofs differ.
   */
  static final class TlsChannels {
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
}
