// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.Handshake.Loss;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/**
 * Requests snapshots from ranks: one connection, one request and one answer for each. These
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
   * Requests a snapshot from every rank.
   *
   * @param key for dump requests, derived from that of the connections between ranks
   * @param members where each listens, by rank
   * @return completes with an answer of each, at the limit at the latest
   */
  CompletableFuture<JobDump> askAll(SessionKey key, List<Contact> members) {
    List<DumpQuery> queries =
        IntStream.range(0, members.size())
            .mapToObj(rank -> ask(key, members.get(rank).address(), rank))
            .toList();
    ScheduledFuture<?> settling =
        loop.scheduleWithFixedDelay(
            () -> settle(queries), SETTLE_NANOS, TICK_NANOS, TimeUnit.NANOSECONDS);
    return CompletableFuture.allOf(
            queries.stream().map(each -> each.snapshot).toArray(CompletableFuture<?>[]::new))
        .thenApply(done -> dump(queries))
        .whenComplete((dump, failure) -> settling.cancel(false));
  }

  private static JobDump dump(List<DumpQuery> queries) {
    return new JobDump(
        queries.stream()
            .map(each -> each.snapshot.getNow(JobDump.noAnswer(each.target, "")))
            .toList());
  }

  /**
   * Gives up on the missing answers before the limit, if the other answers show that these ranks
   * are stopped, and arrived in less than half of the time so far.
   */
  private static void settle(List<DumpQuery> queries) {
    long waited = 0;
    long slowest = 0;
    for (DumpQuery each : queries) {
      waited = each.answer.isDone() ? waited : Math.max(waited, each.waitedNs);
      slowest = each.answer.isDone() ? Math.max(slowest, each.waitedNs) : slowest;
    }
    if (waited >= Math.max(SETTLE_NANOS, 2 * slowest) && dump(queries).isSettled()) {
      queries.forEach(DumpQuery::giveUp);
    }
  }

  /**
   * Sends a request to the process that listens at an address.
   *
   * @param key for dump requests
   * @param target the rank, or -1 for any process at the job's address
   */
  DumpQuery ask(SessionKey key, InetSocketAddress at, int target) {
    DumpQuery query = new DumpQuery(at, target);
    Proof request = Proof.of(LinkKind.INQUIRY, Links.NOWHERE, 0, 0, Resume.NONE);
    query.connector = new Handshake.Connector(key, request, query);
    query.connector.connect(loop, from, at, channels);
    return query;
  }

  /** A request in flight. */
  final class DumpQuery implements Handshake.Outcome {
    final CompletableFuture<BootstrapFrame> answer = new CompletableFuture<>();

    /** The answer of a rank, or why there is none. */
    private final CompletableFuture<Snapshot> snapshot = answer.handle(this::snapshot);

    private final InetSocketAddress at;
    private final int target;
    private final ScheduledFuture<?> ticks =
        loop.scheduleWithFixedDelay(this::tick, TICK_NANOS, TICK_NANOS, TimeUnit.NANOSECONDS);
    private long askedNs = System.nanoTime();
    private long tickNs = askedNs;
    private long waitedNs;
    private Handshake.Connector connector;
    private Channel channel;

    DumpQuery(InetSocketAddress at, int target) {
      this.at = at;
      this.target = target;
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
      end(null, new TransportFailure(FluxCclException.NO_RANK, why));
    }

    private void end(BootstrapFrame frame, FluxCclException failure) {
      ticks.cancel(false);
      if (channel != null) {
        channel.close();
      }
      if (failure == null) {
        answer.complete(frame);
      } else {
        answer.completeExceptionally(failure);
      }
    }

    private Snapshot snapshot(BootstrapFrame frame, Throwable failure) {
      long answeredNs = System.nanoTime();
      try {
        if (failure != null) {
          throw FluxCclException.from(failure);
        }
        Snapshot rank = Snapshot.decode(((DumpReply) frame).content());
        return JobDump.answer(target, rank, askedNs, answeredNs);
      } catch (FluxCclException | ClassCastException e) {
        return JobDump.noAnswer(target, e.getMessage());
      }
    }

    @Override
    public void admitted(Channel connected, Handshake.Connector connector) {
      if (answer.isDone()) {
        connected.close(); // after the limit
        return;
      }
      channel = connected;
      Frames.raiseLimit(channel, BootstrapFrameCodec.CONTROL_LIMIT);
      receive(channel, connector, frame -> end(frame, null), why -> fail(at + ": " + why));
      askedNs = System.nanoTime();
      channel.writeAndFlush(new DumpRequest(all));
    }

    @Override
    public void failed(Loss loss, String why) {
      if (loss == Loss.OTHER_SECRET) {
        end(null, InvalidUsage.of("%s: %s", at, why));
      } else if (loss == Loss.ABSENT) {
        fail("nothing listens at " + at + ": it has left or died");
      } else {
        fail(at + ": " + why);
      }
    }
  }

  /** Answers one request on an admitted connection; the requesting side closes it. */
  static void answer(Channel channel, Handshake.Acceptor acceptor, Job job) {
    InetSocketAddress at = (InetSocketAddress) channel.localAddress();
    channel
        .eventLoop()
        .schedule(() -> channel.close(), Handshake.LIMIT_MILLIS, TimeUnit.MILLISECONDS);
    receive(
        channel,
        acceptor,
        frame -> {
          if (frame instanceof DumpRequest request) {
            channel.writeAndFlush(job.answer(request.all(), at));
          } else {
            channel.close();
          }
        },
        why -> channel.close());
  }

  /** Passes the frames of a connection on, and why no more arrive. */
  private static void receive(
      Channel channel,
      ChannelHandler handshake,
      Consumer<BootstrapFrame> frames,
      Consumer<String> end) {
    ChannelHandler receiver =
        new SimpleChannelInboundHandler<>(BootstrapFrame.class) {
          @Override
          protected void channelRead0(ChannelHandlerContext ctx, BootstrapFrame frame) {
            frames.accept(frame);
          }

          @Override
          public void channelInactive(ChannelHandlerContext ctx) {
            end.accept("it closed the connection");
          }

          @Override
          public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            end.accept(Frames.describe(cause));
          }
        };
    channel.pipeline().replace(handshake, "dump", receiver);
  }
}
