// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
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

/**
 * The thread of a rank's named calls. It announces them to rank 0, and enqueues them on the lane in
 * the order that rank 0 decides by its {@link NamedOrder}. It sleeps while this rank has announced
 * no call; rank 0 then looks every few milliseconds whether other ranks wait.
 *
 * <pre>
 *   announcement  int64 what, int64 count, int64 limit in ns, bytes name; only the name "" if the
 *                 rank leaves
 *   verdict       int64 number, uint8 0 to begin; or 1 + error code, int32 rank, bytes text
 * </pre>
 */
final class NamedAgent extends AgentThread {
  static final int MOST_NAME_BYTES = 96;

  /** Calls without a verdict, beside the two records of an end that leaves. */
  private static final int MOST_ANNOUNCED = NamedLink.SLOTS - 2;

  private static final int MOST_TEXT_BYTES = NamedLink.MOST_BYTES - 17;
  private static final int LEFT = -1;
  private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

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

  // Used only by this thread, until it has ended.
  private final NamedOrder order;
  private final Queue<Runnable> ownVerdicts = new ArrayDeque<>();
  private final Map<Long, NamedCall> announced = new HashMap<>();
  private final Queue<NamedCall> waiting = new ArrayDeque<>();
  private long numbers;
  private long lookNanos;
  private FluxCclException failure;

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
        send(to, new WireWriter().int64(number).uint8(0));
      }
    }

    @Override
    public void fail(int to, long number, Failure reason) {
      if (to == rank) {
        ownVerdicts.add(() -> take(number).fail(exception(reason)));
      } else {
        send(
            to,
            new WireWriter()
                .int64(number)
                .uint8(1 + reason.code().ordinal())
                .int32(reason.rank())
                .bytes(shortened(reason.text())));
      }
    }

    private void send(int to, WireWriter verdict) {
      links.get(to - 1).send(verdict.toBytes());
    }
  }

  private static byte[] shortened(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return bytes.length <= MOST_TEXT_BYTES ? bytes : Arrays.copyOf(bytes, MOST_TEXT_BYTES);
  }

  private static FluxCclException exception(Failure reason) {
    return FluxCclException.of(reason.code(), reason.rank(), "named call " + reason.text());
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
      execute(this::announceLeave);
      end(this::free);
    }
  }

  // ---- this thread ----

  private void accept(NamedCall call) {
    if (failure != null) {
      call.fail(failure.again());
    } else {
      waiting.add(call);
    }
  }

  private NamedCall take(long number) {
    return announced.remove(number);
  }

  @Override
  public int doWork() {
    int work = runTasks();
    if (failure != null) {
      return work;
    }
    try {
      return work + announce() + receive() + look(System.nanoTime());
    } catch (FluxCclException e) {
      communicator.abort(e);
      failAll(e);
      return 1;
    }
  }

  private int announce() {
    int sent = 0;
    while (!waiting.isEmpty() && (order != null || announced.size() < MOST_ANNOUNCED)) {
      NamedCall call = waiting.remove();
      long number = numbers++;
      announced.put(number, call);
      if (order != null) {
        order.announced(rank, call.announcement(number), System.nanoTime());
        applyOwn();
      } else {
        links.get(0).send(encode(call.announcement(number)));
      }
      sent++;
    }
    return sent;
  }

  private static byte[] encode(Announcement call) {
    return new WireWriter()
        .int64(call.what())
        .int64(call.count())
        .int64(call.limitNanos())
        .bytes(call.name().getBytes(StandardCharsets.UTF_8))
        .toBytes();
  }

  private void applyOwn() {
    for (Runnable next = ownVerdicts.poll(); next != null; next = ownVerdicts.poll()) {
      next.run();
    }
  }

  private int receive() {
    int received = 0;
    for (NamedLink link : links) {
      for (byte[] record = link.receive(); record != null; record = link.receive()) {
        WireReader in = WireReader.ofPeer(record, "named call", link.peer());
        if (order != null) {
          receiveAnnouncement(link, in);
        } else {
          receiveVerdict(in);
        }
        received++;
      }
    }
    return received;
  }

  private void receiveAnnouncement(NamedLink link, WireReader in) {
    long what = in.int64("what");
    long count = in.int64("count");
    long limit = in.int64("limit", 0, Long.MAX_VALUE);
    String name = in.string("name", MOST_NAME_BYTES);
    in.end();
    if (name.isEmpty()) {
      order.left(link.peer());
    } else {
      Announcement call = new Announcement(name, link.nextNumber(), what, count, limit);
      order.announced(link.peer(), call, System.nanoTime());
    }
    applyOwn();
  }

  private void receiveVerdict(WireReader in) {
    long number = in.int64("number");
    int code = in.uint8("code");
    in.check(number == LEFT && code > 0 || announced.containsKey(number), "number", Long.toString(number));
    in.check(code <= ErrorCode.values().length, "code", Integer.toString(code));
    if (code == 0) {
      in.end();
      take(number).run(lane);
      return;
    }
    ErrorCode kind = ErrorCode.values()[code - 1];
    int origin = in.int32("rank");
    FluxCclException reason =
        exception(new Failure(kind, origin, in.string("text", MOST_TEXT_BYTES)));
    in.end();
    if (number == LEFT) {
      failAll(reason);
    } else {
      take(number).fail(reason);
    }
  }

  /** Fails calls that are late. */
  private int look(long now) {
    if (order != null) {
      int late = order.tick(now);
      applyOwn();
      return late;
    }
    if (now - lookNanos < GRACE_NANOS) {
      return 0;
    }
    lookNanos = now;
    announced.values().stream()
        .filter(call -> now - call.startNanos() - GRACE_NANOS > call.limitNanos())
        .findFirst()
        .ifPresent(
            late -> {
              throw Timeout.of(
                  0,
                  "named call '%s' on rank %s: rank 0 has sent no verdict; it is suspended",
                  late.name(),
                  rank);
            });
    return 0;
  }

  @Override
  protected void idle() {
    long nap = backoff().nextNapNanos(System.nanoTime());
    if (nap > 0) {
      // No verdict arrives without an announcement of this rank.
      boolean isIdle = announced.isEmpty() || failure != null;
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
    }
  }

  private void announceLeave() {
    if (failure == null && communicator.failure() == null) {
      byte[] leave =
          order == null
              ? encode(new Announcement("", 0, 0, 0, 0))
              : new WireWriter()
                  .int64(LEFT)
                  .uint8(1 + ErrorCode.ABORTED.ordinal())
                  .int32(rank)
                  .bytes(shortened("of any name: rank 0 has closed its named collectives"))
                  .toBytes();
      try {
        links.forEach(link -> link.send(leave));
      } catch (FluxCclException e) {
        communicator.abort(e);
      }
    }
    failAll(Aborted.of(rank, "rank %s: its named collectives were closed", rank));
  }

  /** The last task. Peers may still write to this rank's memory until they leave, too. */
  private void free() {
    Stream<NamedLink> live = communicator.failure() == null ? links.stream() : Stream.empty();
    CompletableFuture.allOf(live.map(this::awaitPeer).toArray(CompletableFuture<?>[]::new))
        .whenComplete((met, late) -> Closing.all(() -> Closing.all(links), memory, lane));
  }

  private CompletableFuture<Void> awaitPeer(NamedLink link) {
    Deadline deadline = Deadline.after(LEAVE_TIMEOUT);
    return communicator.rendezvous(link.peer(), lane.options.tag(), deadline);
  }
}
