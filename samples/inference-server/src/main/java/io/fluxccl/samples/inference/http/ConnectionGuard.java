// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.sun.management.UnixOperatingSystemMXBean;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpStatusClass;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.netty.NettyPipeline;

/**
 * Bounds the number of connections, and the time in which each must send the head of a request,
 * however slowly it drips. Answers a client that has closed its half of the connection. A handler
 * of one connection, after its codec; the connection's event loop alone calls it.
 */
final class ConnectionGuard extends ChannelDuplexHandler {
  private static final Duration FAREWELL = Duration.ofSeconds(1);
  private static final byte[] COMMENT = ":\n\n".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] CONTINUE =
      "HTTP/1.1 100 Continue\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

  private final Limits limits;
  private final boolean isRefused;

  /** The connections of its kind. */
  private final AtomicInteger open;

  /** Requests without a complete answer. */
  private int pending;

  /** Whether the last request is read to its end. */
  private boolean isRead = true;

  /** Whether the head of the present answer is sent. */
  private boolean hasSentHead;

  /** Whether that answer is a stream of server-sent events. */
  private boolean hasEvents;

  private boolean hasInputEnded;
  private boolean knowsContinue;

  /** Closes the connection, or finds out whether its client is there; null if nothing is due. */
  private Future<?> timer;

  /**
   * The bounds of connections.
   *
   * @param connections the most that are served; further ones are refused with status 503
   * @param head the time for the head of a connection's first request
   * @param idle the time between an answer and the head of the next request
   * @param body the time for a request's body
   * @param slowReader the time in which an answer may still be read after its deadline
   * @param probe the interval in which a client that closed its half is probed
   */
  record Limits(
      int connections,
      Duration head,
      Duration idle,
      Duration body,
      Duration slowReader,
      Duration probe) {

    /** Half of the process's descriptors at most: ranks and files need some, too. */
    static Limits ofProcess() {
      int descriptors = 4096;
      if (ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean unix) {
        descriptors = (int) Math.min(MOST_CONNECTIONS * 2, unix.getMaxFileDescriptorCount());
      }
      return new Limits(
          descriptors / 2,
          Duration.ofSeconds(30),
          Duration.ofSeconds(75),
          Duration.ofSeconds(30),
          Duration.ofSeconds(30),
          Duration.ofSeconds(1));
    }

    private static final long MOST_CONNECTIONS = 10_000;
  }

  /** The connections of a server. */
  record Open(AtomicInteger served, AtomicInteger refused) {
    Open() {
      this(new AtomicInteger(), new AtomicInteger());
    }
  }

  private ConnectionGuard(Limits limits, Open all) {
    this.limits = limits;
    this.isRefused =
        all.served.getAndUpdate(n -> Math.min(n + 1, limits.connections)) == limits.connections;
    this.open = isRefused ? all.refused : all.served;
  }

  /** Adds a guard to a new connection. */
  static void install(Channel channel, Limits limits, Open all) {
    ConnectionGuard guard = new ConnectionGuard(limits, all);
    if (guard.isRefused) {
      all.refused.incrementAndGet();
    }
    channel.pipeline().addAfter(NettyPipeline.HttpCodec, "limits", guard);
    channel.closeFuture().addListener(closed -> guard.open.decrementAndGet());
  }

  @Override
  public void channelActive(ChannelHandlerContext ctx) {
    if (isRefused) {
      refuse(ctx);
    } else {
      closeAfter(limits.head, ctx);
      ctx.fireChannelActive();
    }
  }

  /** Reads on for a moment: the client would miss the answer if its request was not read. */
  private void refuse(ChannelHandlerContext ctx) {
    if (open.get() > Math.max(1, limits.connections / 8)) {
      ctx.close();
      return;
    }
    ApiError error =
        ApiError.unavailable("All " + limits.connections + " connections of the server are in use");
    byte[] body = Json.text(error.body()).getBytes(StandardCharsets.UTF_8);
    FullHttpResponse response =
        new DefaultFullHttpResponse(
            HttpVersion.HTTP_1_1,
            HttpResponseStatus.SERVICE_UNAVAILABLE,
            Unpooled.wrappedBuffer(body));
    response
        .headers()
        .set(HttpHeaderNames.CONTENT_TYPE, "application/json")
        .set(HttpHeaderNames.CONTENT_LENGTH, body.length)
        .set(HttpHeaderNames.RETRY_AFTER, error.retryAfterSeconds())
        .set(HttpHeaderNames.CONNECTION, "close");
    closeAfter(FAREWELL, ctx);
    ctx.writeAndFlush(response)
        .addListener(
            (ChannelFutureListener)
                sent -> {
                  ((DuplexChannel) sent.channel()).shutdownOutput();
                  ctx.read();
                });
  }

  @Override
  public void channelRead(ChannelHandlerContext ctx, Object message) {
    if (isRefused) {
      ReferenceCountUtil.release(message);
      ctx.read();
      return;
    }
    if (message instanceof HttpRequest request) {
      cancelTimer();
      pending++;
      isRead = false;
      knowsContinue = request.protocolVersion().equals(HttpVersion.HTTP_1_1);
    }
    isRead |= message instanceof LastHttpContent;
    ctx.fireChannelRead(message);
  }

  @Override
  public void write(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
    boolean isInformation =
        message instanceof HttpResponse response
            && response.status().codeClass() == HttpStatusClass.INFORMATIONAL;
    if (message instanceof HttpResponse response && !isInformation) {
      hasSentHead = true;
      String type = response.headers().get(HttpHeaderNames.CONTENT_TYPE, "");
      hasEvents = type.startsWith("text/event-stream");
    }
    if (!(message instanceof LastHttpContent) || isInformation || isRefused) {
      ctx.write(message, promise);
      return;
    }
    hasSentHead = false;
    pending--;
    ctx.write(message, promise.unvoid())
        .addListener(
            sent -> {
              if (pending <= 0 && hasInputEnded) {
                ctx.close();
              } else if (pending <= 0) {
                closeAfter(limits.idle, ctx);
              }
            });
  }

  @Override
  public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
    if (event instanceof ChannelInputShutdownEvent) {
      hasInputEnded = true;
      if (pending == 0 || !isRead) {
        ctx.close();
      } else {
        probeLater(ctx);
      }
    } else if (!(event instanceof ChannelInputShutdownReadComplete)) {
      ctx.fireUserEventTriggered(event);
    }
  }

  /**
   * Sends an interim answer, or a comment among events; clients skip both. A client that is not
   * there any more resets the connection, and the next probe fails.
   */
  private void probeLater(ChannelHandlerContext ctx) {
    cancelTimer();
    timer =
        ctx.executor()
            .schedule(
                () -> {
                  if (hasSentHead && hasEvents) {
                    ctx.writeAndFlush(new DefaultHttpContent(Unpooled.wrappedBuffer(COMMENT)));
                  } else if (knowsContinue && !hasSentHead && pending > 0) {
                    ctx.pipeline()
                        .context(NettyPipeline.HttpCodec)
                        .writeAndFlush(Unpooled.wrappedBuffer(CONTINUE));
                  }
                  probeLater(ctx);
                },
                limits.probe.toMillis(),
                TimeUnit.MILLISECONDS);
  }

  private void closeAfter(Duration time, ChannelHandlerContext ctx) {
    cancelTimer();
    timer = ctx.executor().schedule(() -> ctx.close(), time.toMillis(), TimeUnit.MILLISECONDS);
  }

  private void cancelTimer() {
    if (timer != null) {
      timer.cancel(false);
      timer = null;
    }
  }

  @Override
  public void channelInactive(ChannelHandlerContext ctx) {
    cancelTimer();
    ctx.fireChannelInactive();
  }
}
