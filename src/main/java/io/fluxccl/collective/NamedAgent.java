// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.collective.NamedOrder.Announcement;
import io.fluxccl.collective.NamedOrder.Failure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The thread of a rank's named calls. It announces them to rank 0, and enqueues them on the lane in
 * the order that rank 0 decides by its {@link NamedOrder}. It sleeps while this rank has announced
 * no call; rank 0 then looks every few milliseconds whether other ranks wait.
 *
 * <p>A rank that leaves sends a record, applies the verdicts until rank 0 has answered it, and then
 * ends. If rank 0 leaves, no call can begin any more: it sends its record to all others, and ends
 * when their memory has it.
 *
 * <pre>
 *   announcement  int64 what, int64 count, int64 limit in ns, bytes name; only the name "" if the
 *                 rank leaves
 *   verdict       int64 number, uint8 0 to begin; or 1 + error code, int32 rank, bytes text.
 *                 Number -1: rank 0 sends no more, because this rank or rank 0 has left
 * </pre>
 */
final class NamedAgent extends AgentThread {
  static final int MOST_NAME_BYTES = 96;

  private static final Logger LOG = LoggerFactory.getLogger(NamedAgent.class);
  private static final int MOST_TEXT_BYTES = NamedLink.MOST_BYTES - 17;
  private static final int LEFT = -1;
  private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  /** The longest time between two cycles that counts as time of waiting for rank 0. */
  private static final long CYCLE_NANOS = TimeUnit.SECONDS.toNanos(1);

  /** Time that rank 0 has to fail a late call before this rank does. */
  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final Duration LEAVE_TIMEOUT = Duration.ofSeconds(5);

  private final Lane lane;
  private final Communicator communicator;
  private final int rank;
  private final List<NamedLink> links;

  /** Frees this rank's part of the links. */
  private final AutoCloseable memory;

  private final AtomicBoolean isLeaving = new AtomicBoolean();

  /** Completes when all is freed. */
  private final CompletableFuture<Void> ended = new CompletableFuture<>();

  // Used only by this thread, until it has ended.
  private final NamedOrder order;
  private final Queue<Runnable> ownVerdicts = new ArrayDeque<>();
  private final Map<Long, NamedCall> announced = new HashMap<>();
  private final Queue<NamedCall> waiting = new ArrayDeque<>();
  private long numbers;
  private FluxCclException failure;
  private FluxCclException linkFailure;

  /** Since when it waits for rank 0's answer to its leave, by its own clock; 0 if it does not. */
  private long leaveNanos;

  // Its clock: a cycle counts as CYCLE_NANOS at most, because this process may be suspended.
  private long clockNanos = 1;
  private long cycleNanos = System.nanoTime();

  /** When to look for late calls, by its clock. */
  private long lookNanos;

  /**
   * @param links of rank 0 to all others, by rank; of another rank to rank 0
   * @param memory this rank's, of all links
   */
  NamedAgent(Lane lane, List<NamedLink> links, AutoCloseable memory) {
    super(
        "fluxccl-named-" + lane.options.tag() + "-rank" + lane.peers.rank(),
        new IdleBackoff(50, 200, 5, 500));
    this.lane = lane;
    this.communicator = lane.communicator;
    this.rank = lane.peers.rank();
    this.links = links;
    this.memory = memory;
    this.order = rank == 0 ? new NamedOrder(lane.peers.nRanks(), new Sender()) : null;
  }

  /** Sends the verdicts to their ranks: rank 0 applies its own after all others have theirs. */
  private final class Sender implements NamedOrder.Verdicts {
    @Override
    public void begin(int to, long number) {
      if (to == rank) {
        ownVerdicts.add(() -> take(number).run(lane));
      } else {
        send(links.get(to - 1), new WireWriter().int64(number).uint8(0).toBytes());
      }
    }

    @Override
    public void fail(int to, long number, Failure reason) {
      if (to == rank) {
        ownVerdicts.add(() -> take(number).fail(exception(reason)));
      } else {
        send(links.get(to - 1), encode(number, reason));
      }
    }
  }

  private static byte[] encode(long number, Failure reason) {
    byte[] text = reason.text().getBytes(StandardCharsets.UTF_8);
    return new WireWriter()
        .int64(number)
        .uint8(1 + reason.code().ordinal())
        .int32(reason.rank())
        .bytes(text.length <= MOST_TEXT_BYTES ? text : Arrays.copyOf(text, MOST_TEXT_BYTES))
        .toBytes();
  }

  private static byte[] encode(Announcement call) {
    return new WireWriter()
        .int64(call.what())
        .int64(call.count())
        .int64(call.limitNanos())
        .bytes(call.name().getBytes(StandardCharsets.UTF_8))
        .toBytes();
  }

  private static FluxCclException exception(Failure reason) {
    return FluxCclException.of(reason.code(), reason.rank(), "named call " + reason.text());
  }

  /** Sends a record. A failure is handled at the end of the cycle: the peer may have left. */
  private void send(NamedLink link, byte[] message) {
    try {
      link.send(message);
    } catch (FluxCclException e) {
      linkFailure = linkFailure == null ? e : linkFailure;
    }
  }

  // ---- any thread ----

  /** Announces a call; it begins when all ranks have. */
  void submit(NamedCall call) {
    execute(() -> accept(call));
  }

  /** Fails all calls, also later ones. */
  void fail(FluxCclException reason) {
    execute(() -> failAll(reason));
  }

  /** Leaves the other ranks, and then frees all. Idempotent. */
  void leave() {
    if (isLeaving.compareAndSet(false, true)) {
      execute(this::beginLeave);
    }
  }

  /** Returns a future that completes when all is freed. */
  CompletableFuture<Void> ended() {
    return ended;
  }

  // ---- this thread ----

  private void accept(NamedCall call) {
    if (failure != null) {
      call.fail(failure.again());
    } else if (leaveNanos != 0) {
      call.fail(closed());
    } else {
      waiting.add(call);
    }
  }

  private Aborted closed() {
    return Aborted.of(rank, "rank %s: its named collectives were closed", rank);
  }

  private NamedCall take(long number) {
    return announced.remove(number);
  }

  @Override
  public int doWork() {
    long now = System.nanoTime();
    clockNanos += Math.min(now - cycleNanos, CYCLE_NANOS);
    cycleNanos = now;
    int work = runTasks();
    if (failure == null) {
      // The records of ranks that have left come first: nothing may be sent to these.
      work += receive() + announce() + look(now);
    } else if (leaveNanos != 0) {
      work += links.stream().mapToInt(this::sendWaiting).sum();
    }
    if (linkFailure != null && failure == null) {
      receive();
    }
    if (linkFailure != null && failure == null) {
      communicator.abort(linkFailure);
      failAll(linkFailure);
    }
    return work;
  }

  private int announce() {
    int sent = 0;
    for (NamedCall call = waiting.poll(); call != null; call = waiting.poll()) {
      long number = numbers++;
      call.start(clockNanos);
      announced.put(number, call);
      if (order != null) {
        order.announced(rank, call.announcement(number), System.nanoTime());
        applyOwn();
      } else {
        send(links.get(0), encode(call.announcement(number)));
      }
      sent++;
    }
    return sent;
  }

  private void applyOwn() {
    for (Runnable next = ownVerdicts.poll(); next != null; next = ownVerdicts.poll()) {
      next.run();
    }
  }

  private int receive() {
    int done = 0;
    for (NamedLink link : links) {
      done += sendWaiting(link);
      try {
        for (byte[] record = link.receive(); record != null; record = link.receive()) {
          WireReader in = WireReader.ofPeer(record, "named call", link.peer());
          if (order != null) {
            receiveAnnouncement(link, in);
          } else {
            receiveVerdict(in);
          }
          done++;
        }
      } catch (FluxCclException e) {
        linkFailure = linkFailure == null ? e : linkFailure;
      }
    }
    return done;
  }

  private int sendWaiting(NamedLink link) {
    try {
      return order != null && order.isGone(link.peer()) ? 0 : link.sendWaiting();
    } catch (FluxCclException e) {
      linkFailure = linkFailure == null ? e : linkFailure;
      return 0;
    }
  }

  private void receiveAnnouncement(NamedLink link, WireReader in) {
    long what = in.int64("what");
    long count = in.int64("count");
    long limit = in.int64("limit", 0, Long.MAX_VALUE);
    String name = in.string("name", MOST_NAME_BYTES);
    in.end();
    if (name.isEmpty()) {
      order.left(link.peer());
      Failure none = new Failure(ErrorCode.ABORTED, link.peer(), "");
      send(link, encode(LEFT, none));
    } else {
      Announcement call = new Announcement(name, link.nextNumber(), what, count, limit);
      order.announced(link.peer(), call, System.nanoTime());
    }
    applyOwn();
  }

  private void receiveVerdict(WireReader in) {
    long number = in.int64("number");
    int code = in.uint8("code");
    boolean isKnown = announced.containsKey(number) || number == LEFT && code > 0;
    in.check(isKnown, "number", Long.toString(number));
    in.check(code <= ErrorCode.values().length, "code", Integer.toString(code));
    if (code == 0) {
      in.end();
      take(number).run(lane);
      return;
    }
    ErrorCode kind = ErrorCode.values()[code - 1];
    int origin = in.int32("rank");
    Failure reason = new Failure(kind, origin, in.string("text", MOST_TEXT_BYTES));
    in.end();
    if (number != LEFT) {
      take(number).fail(exception(reason));
    } else if (leaveNanos != 0) {
      endLeave();
    } else {
      failAll(exception(reason));
    }
  }

  /** Fails calls that are late. */
  private int look(long now) {
    if (order != null) {
      int late = order.tick(now);
      applyOwn();
      return late;
    }
    if (leaveNanos != 0 && clockNanos - leaveNanos > LEAVE_TIMEOUT.toNanos()) {
      endLeave();
      return 1;
    }
    if (clockNanos - lookNanos < GRACE_NANOS) {
      return 0;
    }
    lookNanos = clockNanos;
    announced.values().stream()
        .filter(call -> call.isLate(clockNanos, GRACE_NANOS))
        .findFirst()
        .ifPresent(this::refuseWait);
    return 0;
  }

  private void refuseWait(NamedCall late) {
    Timeout reason =
        Timeout.of(
            0,
            "named call '%s' on rank %s: rank 0 has sent no verdict; it is suspended",
            late.name(),
            rank);
    communicator.abort(reason);
    failAll(reason);
  }

  @Override
  protected boolean mayEnd() {
    boolean isLate = clockNanos - leaveNanos > LEAVE_TIMEOUT.toNanos();
    return isLate || linkFailure != null || isAloneInJob() || !hasWaiting();
  }

  private boolean hasWaiting() {
    return links.stream().anyMatch(NamedLink::hasWaiting);
  }

  @Override
  protected void idle() {
    long nap = backoff().nextNapNanos(System.nanoTime());
    if (nap > 0) {
      // No verdict arrives without an announcement of this rank.
      boolean isIdle = announced.isEmpty() && leaveNanos == 0 || failure != null && !hasWaiting();
      long most = order == null || failure != null ? UNTIL_WOKEN : LOOK_NANOS;
      park(isIdle ? most : nap);
    }
  }

  private void failAll(FluxCclException reason) {
    if (failure == null) {
      failure = reason;
      List<NamedCall> all = new ArrayList<>(announced.values());
      all.addAll(waiting);
      announced.clear();
      waiting.clear();
      all.forEach(call -> call.fail(reason.again()));
      if (leaveNanos != 0) {
        end(this::free);
      }
    }
  }

  // ---- leaving ----

  private boolean isAlone() {
    return failure != null || isAloneInJob();
  }

  private void beginLeave() {
    if (!isAlone()) {
      receive();
    }
    leaveNanos = clockNanos;
    waiting.forEach(call -> call.fail(closed()));
    waiting.clear();
    if (isAlone()) {
      failAll(closed());
      end(this::free);
    } else if (order == null) {
      send(links.get(0), encode(new Announcement("", 0, 0, 0, 0)));
    } else {
      order.left(rank);
      Failure reason =
          new Failure(ErrorCode.ABORTED, rank, "of any name: rank 0 has closed its own");
      links.stream()
          .filter(link -> !order.isGone(link.peer()))
          .forEach(link -> send(link, encode(LEFT, reason)));
      endLeave();
    }
  }

  private void endLeave() {
    failAll(closed());
    end(this::free);
  }

  /** The last task. Rank 0's records must arrive before its connections end. */
  private void free() {
    Stream<NamedLink> told = order == null || isAloneInJob() ? Stream.empty() : links.stream();
    CompletableFuture.allOf(
            told.filter(link -> !order.isGone(link.peer()))
                .map(link -> link.flush(LEAVE_TIMEOUT))
                .toArray(CompletableFuture<?>[]::new))
        .whenComplete(
            (done, late) -> {
              try {
                Closing.all(() -> Closing.all(links), memory, lane);
              } catch (RuntimeException | Error e) {
                LOG.warn("rank {}: named collectives were not closed completely", rank, e);
              } finally {
                ended.complete(null);
              }
            });
  }

  private boolean isAloneInJob() {
    return communicator.failure() != null || communicator.isClosed();
  }
}
