// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.RankAnswer;
import io.fluxccl.trace.RankReport;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Requests reports from ranks: one connection, one request and one answer for each. These
 * connections are independent of the job's: losing one has no effect, and none needs the root or
 * another rank. Only on the event loop.
 *
 * @param from the local address to use, or null for any
 * @param limit how long to wait for an answer
 * @param all whether to ask for all calls that are kept
 */
record DumpClient(
    EventLoop loop, ChannelGroup channels, InetAddress from, Duration limit, boolean all) {
  /** The time that ranks have at least before {@link #settle} gives up on them. */
  private static final long SETTLE_NANOS = 100_000_000;

  private static final long TICK_NANOS = 25_000_000;

  /**
   * Requests a report from every rank.
   *
   * @param key for dump requests, derived from that of the connections between ranks
   * @param members where each listens, by rank
   * @return completes with an answer for each, at the limit at the latest
   */
  CompletableFuture<JobDump> askAll(SessionKey key, List<Member> members) {
    List<DumpQuery> queries = new ArrayList<>();
    List<CompletableFuture<RankAnswer>> answers = new ArrayList<>();
    for (int rank = 0; rank < members.size(); rank++) {
      DumpQuery query = ask(key, members.get(rank).address(), members.size(), rank);
      queries.add(query);
      answers.add(answer(rank, query));
    }
    ScheduledFuture<?> looks =
        loop.scheduleWithFixedDelay(
            () -> settle(queries, answers), SETTLE_NANOS, TICK_NANOS, TimeUnit.NANOSECONDS);
    return CompletableFuture.allOf(answers.toArray(CompletableFuture<?>[]::new))
        .thenApply(
            done ->
                JobDump.of(members.size(), answers.stream().map(CompletableFuture::join).toList()))
        .whenComplete((dump, failure) -> looks.cancel(false));
  }

  /**
   * Gives up on the missing answers before the limit, if the other answers show that these ranks
   * are stopped, and arrived in less than half of the time so far.
   */
  private static void settle(List<DumpQuery> queries, List<CompletableFuture<RankAnswer>> answers) {
    List<RankAnswer> known = new ArrayList<>();
    long waited = 0;
    long slowest = 0;
    for (int rank = 0; rank < answers.size(); rank++) {
      long ns = queries.get(rank).waitedNs;
      if (answers.get(rank).isDone()) {
        slowest = Math.max(slowest, ns);
      } else {
        waited = Math.max(waited, ns);
      }
      known.add(answers.get(rank).getNow(RankAnswer.none(rank, "")));
    }
    if (waited >= Math.max(SETTLE_NANOS, 2 * slowest)
        && JobDump.of(answers.size(), known).isSettled()) {
      queries.forEach(DumpQuery::giveUp);
    }
  }

  private CompletableFuture<RankAnswer> answer(int rank, DumpQuery query) {
    return query.answer.handle(
        (frame, failure) -> {
          try {
            if (failure != null) {
              throw FluxCclException.from(failure);
            }
            RankReport report = RankReport.decode(((DumpReply) frame).content());
            long asked = query.askedNs == 0 ? query.beganNs : query.askedNs;
            return RankAnswer.of(rank, report, asked, query.answeredNs);
          } catch (FluxCclException | ClassCastException e) {
            return RankAnswer.none(rank, e.getMessage());
          }
        });
  }

  /**
   * Sends a request to the process that listens at an address.
   *
   * @param nRanks as this process knows it, or 0
   * @param target the rank, or -1 for a root or a rendezvous
   */
  DumpQuery ask(SessionKey key, InetSocketAddress at, int nRanks, int target) {
    DumpQuery query = new DumpQuery(at);
    Handshake.Connector connector =
        new Handshake.Connector(key, LinkKind.INQUIRY, target, nRanks, target, query);
    query.connector = connector;
    query.begin();
    connector.connect(loop, from, at, channels);
    return query;
  }

  /** A request in flight. */
  final class DumpQuery implements Handshake.Outcome {
    final CompletableFuture<BootstrapFrame> answer = new CompletableFuture<>();
    private final InetSocketAddress at;
    private final long beganNs = System.nanoTime();
    private long tickNs = beganNs;
    private long waitedNs;
    private Handshake.Connector connector;
    private Channel channel;
    long askedNs;
    long answeredNs;

    DumpQuery(InetSocketAddress at) {
      this.at = at;
    }

    private void begin() {
      ScheduledFuture<?> ticks =
          loop.scheduleWithFixedDelay(this::tick, TICK_NANOS, TICK_NANOS, TimeUnit.NANOSECONDS);
      answer.whenComplete(
          (frame, failure) -> {
            ticks.cancel(false);
            if (channel != null) {
              channel.close();
            }
          });
    }

    /**
     * Counts the time in which this thread could receive the answer. A new process may spend longer
     * on loading classes, above all those of TLS, while the rank's answer waits.
     */
    private void tick() {
      long nowNs = System.nanoTime();
      waitedNs += Math.min(nowNs - tickNs, 2 * TICK_NANOS);
      tickNs = nowNs;
      if (waitedNs >= limit.toNanos()) {
        giveUp();
      }
    }

    private void giveUp() {
      boolean stopped = channel == null && connector.isUnanswered();
      fail(
          Text.of(
              "no answer from %s within %d ms%s",
              at,
              TimeUnit.NANOSECONDS.toMillis(waitedNs),
              stopped ? "; its process is stopped, or too busy" : ""));
    }

    private void fail(String why) {
      answer.completeExceptionally(new TransportFailure(FluxCclException.NO_RANK, why));
    }

    @Override
    public void admitted(Channel connected, Handshake.Connector connector) {
      if (answer.isDone()) {
        connected.close(); // after the limit
        return;
      }
      channel = connected;
      Frames.raiseLimit(channel, BootstrapFrameCodec.CONTROL_LIMIT);
      channel.pipeline().replace(connector, "answer", new Answer());
      askedNs = System.nanoTime();
      channel.writeAndFlush(new DumpRequest(all));
    }

    @Override
    public void refused(Admission admission, int expectedRanks) {
      fail("refused at " + at + ": " + admission);
    }

    @Override
    public void lost(String why) {
      fail(at + ": " + why);
    }

    @Override
    public void secretMismatch() {
      answer.completeExceptionally(InvalidUsage.of("%s: %s", at, Handshake.SECRETS_DIFFER));
    }

    @Override
    public void absent(String why) {
      fail("nothing listens at " + at + ": it has left or died");
    }

    private final class Answer extends SimpleChannelInboundHandler<BootstrapFrame> {
      Answer() {
        super(BootstrapFrame.class);
      }

      @Override
      protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
        answeredNs = System.nanoTime();
        answer.complete(frame);
      }

      @Override
      public void channelInactive(ChannelHandlerContext ctx) {
        fail(at + ": it closed the connection");
      }

      @Override
      public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
        fail(at + ": " + Frames.describe(cause));
      }
    }
  }

  /** Answers one request on an admitted connection; the requesting side closes it. */
  static void answer(Channel channel, Handshake.Acceptor acceptor, Gate gate) {
    channel
        .eventLoop()
        .schedule(() -> channel.close(), Handshake.LIMIT_MILLIS, TimeUnit.MILLISECONDS);
    channel
        .pipeline()
        .replace(
            acceptor,
            "inquiry",
            new SimpleChannelInboundHandler<BootstrapFrame>(BootstrapFrame.class) {
              @Override
              protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
                if (frame instanceof DumpRequest request) {
                  ctx.channel().writeAndFlush(gate.answer(request.all()));
                } else {
                  ctx.close();
                }
              }

              @Override
              public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
                ctx.close();
              }
            });
  }
}
