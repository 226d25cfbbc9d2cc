// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attend;
import io.fluxccl.bootstrap.BootstrapFrame.Convened;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Spare;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoop;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The rendezvous at which the processes of a job form each of its generations, or the surviving
 * ranks of a failed job form a smaller group. A process that can listen at the job's address hosts
 * it; if that process dies, another one takes over. So the rendezvous continues as long as one
 * process runs on the host of the address. Thread-safe.
 */
@io.fluxccl.Experimental
public final class Meeting implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Meeting.class);
  private static final long FIRST_BACKOFF_MILLIS = 10;
  private static final long MAX_BACKOFF_MILLIS = 200;

  private final MeetingPlace place;
  private final int least;
  private final Duration patience;
  private final SharedEventLoop thread;
  private final EventLoop loop;

  // The fields below are accessed only on the event loop.
  private final DefaultChannelGroup channels;
  private MeetingHost host;
  private Session session;
  private Attendance attendance;

  /** Fails the wait at its deadline; null while a generation runs without this process. */
  private ScheduledFuture<?> timer;

  private Patience refusals;
  private Membership membership;
  private boolean closed;
  private long backoffMillis = FIRST_BACKOFF_MILLIS;
  private List<Integer> missing = List.of();
  private String trouble = "no answer yet";

  /** A wait for the next generation. */
  private record Attendance(
      Attend request, CompletableFuture<Membership> result, Deadline deadline) {}

  /**
   * Creates a rendezvous; {@link #attend} then joins its next generation.
   *
   * @param place the requested rank, the number of ranks of a full generation, and the address. A
   *     unique id is refused, because its root dies with the process that created it
   * @param options secret, heartbeat interval and name
   * @param least the fewest ranks that a generation after the first may have
   * @param patience how long a smaller generation waits for more ranks
   * @throws InvalidUsage if there is no address
   */
  public Meeting(RankEnvironment place, BootstrapOptions options, int least, Duration patience) {
    this(MeetingPlace.of(place, options, least), least, patience);
  }

  /**
   * Creates the rendezvous of the ranks of a failed job. The next generation forms once all of them
   * have joined, except dead ranks and those that {@link #attend} names as lost. A rank is dead if
   * its port refuses connections.
   *
   * @param failed the bootstrap of this process's rank; close it after the rendezvous, because its
   *     open port shows the others that this rank is alive
   * @param generation the generation number of the failed job
   */
  public Meeting(TcpBootstrap failed, long generation) {
    this(MeetingPlace.of(failed, generation), 1, Duration.ZERO);
  }

  private Meeting(MeetingPlace place, int least, Duration patience) {
    this.place = place;
    this.least = least;
    this.patience = patience;
    this.thread = SharedEventLoop.acquire();
    this.loop = thread.loop();
    this.channels = new DefaultChannelGroup(loop, true);
  }

  /**
   * Waits for the next generation and takes part in it. One call at a time.
   *
   * @param previous this process's place in its latest generation, or null
   * @param lost a rank of that generation that is known not to join
   * @param deadline by when the generation must have formed; restarts whenever a generation that
   *     ran without this process has ended
   * @return the place in the generation. Fails with {@link Timeout}, naming missing ranks. Fails
   *     with {@link InvalidUsage} if the others expect another number of ranks or another secret,
   *     and with {@link Aborted} if the other ranks of a failed job have continued without this one
   */
  public CompletableFuture<Membership> attend(
      Membership previous, OptionalInt lost, Deadline deadline) {
    CompletableFuture<Membership> result = new CompletableFuture<>();
    Attend request =
        new Attend(
            previous == null ? 0 : previous.generation(),
            previous == null ? Membership.NEWCOMER : previous.rank(),
            previous == null ? 0 : previous.nRanks(),
            lost.stream().boxed().toList(),
            least,
            patience.toMillis());
    try {
      loop.execute(() -> begin(request, result, deadline));
    } catch (RejectedExecutionException e) {
      result.completeExceptionally(wasClosed());
    }
    return result;
  }

  private void begin(Attend request, CompletableFuture<Membership> result, Deadline deadline) {
    if (closed) {
      result.completeExceptionally(wasClosed());
      return;
    }
    attendance = new Attendance(request, result, deadline);
    startTimer(deadline);
    backoffMillis = FIRST_BACKOFF_MILLIS;
    refusals = new Patience(deadline.timeout());
    place.refusal(request.generation(), request.lost()).thenAccept(why -> go(request, why));
  }

  private void go(Attend request, Optional<Aborted> refusal) {
    if (attendance != null && attendance.request == request) {
      if (refusal.isPresent()) {
        end().completeExceptionally(refusal.get());
      } else if (session != null) {
        session.send(request);
      } else {
        reach();
      }
    }
  }

  private static Aborted wasClosed() {
    return new Aborted(FluxCclException.NO_RANK, "the rendezvous was closed");
  }

  private void startTimer(Deadline deadline) {
    timer =
        loop.schedule(
            () -> end().completeExceptionally(place.late(deadline.timeout(), missing, trouble)),
            deadline.remainingNanos(),
            TimeUnit.NANOSECONDS);
  }

  private void stopTimer() {
    if (timer != null) {
      timer.cancel(false);
      timer = null;
    }
  }

  /** Restarts the timer of a wait that had none while a generation ran. */
  private void restartTimer() {
    if (attendance != null && timer == null) {
      startTimer(Deadline.after(attendance.deadline.timeout()));
    }
  }

  /** Ends the wait; the caller completes its result. */
  private CompletableFuture<Membership> end() {
    CompletableFuture<Membership> result = attendance.result;
    stopTimer();
    attendance = null;
    return result;
  }

  // ---- connecting to the host, or becoming it ----

  private void reach() {
    place
        .resolve()
        .thenApplyAsync(place::checkTrusted, loop)
        .thenCompose(this::hostIfPossible)
        .thenAcceptAsync(this::connect, loop)
        .whenCompleteAsync(
            (connecting, failure) -> {
              FluxCclException reason = failure == null ? null : FluxCclException.from(failure);
              if (reason != null && reason.getCause() instanceof UnknownHostException) {
                again(reason.getMessage()); // a name may get its address after this process starts
              } else if (reason != null && attendance != null) {
                end().completeExceptionally(reason);
              }
            },
            loop);
  }

  private CompletableFuture<InetSocketAddress> hostIfPossible(InetAddress ip) {
    InetSocketAddress wanted = new InetSocketAddress(ip, place.address().port());
    if (host != null || closed) {
      return CompletableFuture.completedFuture(wanted);
    }
    MeetingHost candidate = new MeetingHost(loop, place);
    return candidate
        .open(wanted)
        .handle(
            (bound, failure) -> {
              if (failure != null) {
                return wanted; // another process hosts it, here or elsewhere
              }
              if (closed) {
                candidate.close();
              } else {
                host = candidate;
              }
              return bound;
            });
  }

  private void connect(InetSocketAddress at) {
    if (attendance == null || session != null || closed) {
      return;
    }
    new Handshake.Connector(
            place.key(), LinkKind.MEETING, place.rank(), place.nRanks(), -1, new Connecting())
        .connect(loop, place.from(), at, channels);
  }

  private void again(String why) {
    trouble = why;
    if (attendance != null && !closed) {
      loop.schedule(this::reach, backoffMillis, TimeUnit.MILLISECONDS);
      backoffMillis = Math.min(2 * backoffMillis, MAX_BACKOFF_MILLIS);
    }
  }

  private final class Connecting implements Handshake.Outcome {
    @Override
    public void admitted(Channel channel, Handshake.Connector connector) {
      if (attendance == null || closed) {
        channel.close();
        return;
      }
      session = new Session(channel);
      session.replace(connector, BootstrapFrameCodec.CONTROL_LIMIT);
      session.send(attendance.request);
    }

    @Override
    public void refused(Admission admission, int expectedRanks) {
      refusals.reset();
      if (admission == Admission.WRONG_RANK_COUNT && attendance != null) {
        end()
            .completeExceptionally(
                InvalidUsage.of(
                    "%s is refused: the job at %s has %s ranks",
                    place, place.address(), expectedRanks));
      } else {
        again("it is the root of a job without generations");
      }
    }

    @Override
    public void lost(String why) {
      refusals.reset();
      again(why);
    }

    @Override
    public void secretMismatch() {
      if (refusals.begins()) {
        LOG.warn("{}", place.secretMismatch().getMessage());
      }
      // A member of an earlier generation has the right secret: another process holds the address.
      boolean newcomer = attendance != null && attendance.request.generation() == 0;
      if (newcomer && refusals.isOver()) {
        end().completeExceptionally(place.secretMismatch());
      } else {
        again(Handshake.SECRETS_DIFFER);
      }
    }
  }

  // ---- messages of the host ----

  private void convened(Convened news) {
    if (attendance == null) {
      return;
    }
    missing = List.of();
    membership =
        new Membership(
            news.generation(),
            news.rank(),
            news.previousRanks(),
            place.key().forJob(news.jobId()),
            news.root());
    end().complete(membership);
  }

  private void spare() {
    if (attendance != null && place.failed() != null) {
      end().completeExceptionally(place.goneOn(FluxCclException.NO_RANK));
    } else if (attendance != null) {
      stopTimer();
    } else if (membership != null) {
      membership.newcomersWait();
    }
  }

  private void broken(FluxCclException reason) {
    if (membership != null) {
      membership.broken().complete(reason);
    }
  }

  private final class Session extends FrameSession {
    Session(Channel channel) {
      super(channel);
    }

    @Override
    void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
      if (frame instanceof Waiting waiting) {
        missing = waiting.missing();
        restartTimer();
      } else if (frame instanceof Spare) {
        spare();
      } else if (frame instanceof Convened news) {
        convened(news);
      } else if (frame instanceof Failed failed) {
        broken(failed.toException());
      } else {
        ctx.close();
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
      session = null;
      String why = "lost the process that hosts the rendezvous at " + place.address();
      broken(new RemoteFailure(FluxCclException.NO_RANK, why));
      restartTimer();
      again(why);
    }
  }

  /**
   * Leaves the rendezvous, without waiting. A pending wait for the next generation fails.
   * Idempotent.
   */
  @Override
  public void close() {
    try {
      loop.execute(this::leave);
    } catch (RejectedExecutionException e) {
      return; // closed before: its thread has ended
    }
  }

  private void leave() {
    if (closed) {
      return;
    }
    closed = true;
    if (attendance != null) {
      end().completeExceptionally(wasClosed());
    }
    if (host != null) {
      host.close(); // now: a generation that it still formed would end with it
    }
    if (session != null) {
      session.sendGoodbye();
    }
    // The host closes the socket when it has read the goodbye.
    loop.schedule(
        () -> {
          channels.close();
          thread.leave();
        },
        session == null ? 0 : MAX_BACKOFF_MILLIS,
        TimeUnit.MILLISECONDS);
  }
}
