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
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.trace.Snapshot;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

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
 *   verdict       uint8 0, int32 numbers of the calls to begin, several as one bucket; or
 *                 uint8 1 + error code, int64 number, int32 rank, bytes text.
 *                 Number -1: rank 0 sends no more, because this rank or rank 0 has left
 * </pre>
 */
final class NamedAgent extends AgentThread {
  static final int MOST_NAME_BYTES = 96;

  private static final Logger LOG = LoggerFactory.getLogger(NamedAgent.class);
  private static final int MOST_TEXT_BYTES = NamedLink.MOST_BYTES - 17;
  private static final int LEFT = -1;

  /** The most calls that a dump shows for a rank. */
  private static final int MOST_SHOWN = 64;

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

  /** Null if no calls are fused. */
  private final NamedBuckets buckets;

  /** Frees this rank's part of the links. */
  private final AutoCloseable memory;

  private final AtomicBoolean isLeaving = new AtomicBoolean();

  /** Completes when all is freed. */
  private final CompletableFuture<Void> ended = new CompletableFuture<>();

  /** Calls that have not begun; written by this thread. */
  private final Map<Long, NamedCall> announced = new ConcurrentHashMap<>();

  /** Operations that have begun here and are not over. */
  private final AtomicInteger inFlight = new AtomicInteger();

  /** Whether all-reduces wait here until an operation is over. */
  private volatile boolean isHolding;

  // Used only by this thread, until it has ended.
  private final NamedOrder order;
  private final Queue<Runnable> ownVerdicts = new ArrayDeque<>();
  private final Queue<NamedCall> waiting = new ArrayDeque<>();
  private int numbers;
  private FluxCclException failure;
  private FluxCclException linkFailure;

  /** Completes when no more news of the first rank that left is awaited; null before that. */
  private CompletableFuture<FluxCclException> news;

  /** Since when it waits for rank 0's answer to its leave, by its own clock; 0 if it does not. */
  private long leaveNanos;

  // Its clock: a cycle counts as CYCLE_NANOS at most, because this process may be suspended.
  private long clockNanos = 1;
  private long cycleNanos = System.nanoTime();

  /** When it has last looked for late calls, by its clock. */
  private long lookNanos;

  // Virtual time, if a test has installed it: the latest, and how much has passed in all.
  private Scheduler virtualTimers;
  private long virtualNanos;
  private volatile long virtualPassed;

  /** When rank 0's last verdict came, by its clock. */
  private long heardNanos;

  /**
   * @param links of rank 0 to all others, by rank; of another rank to rank 0
   * @param buckets fuses calls; null for none
   * @param memory this rank's, of all links
   */
  NamedAgent(
      Lane lane,
      NamedOptions options,
      List<NamedLink> links,
      NamedBuckets buckets,
      AutoCloseable memory) {
    super(
        "fluxccl-named-" + lane.options.tag() + "-rank" + lane.peers.rank(),
        new IdleBackoff(50, 200, 5, 500));
    this.lane = lane;
    this.communicator = lane.communicator;
    this.rank = lane.peers.rank();
    this.links = links;
    this.buckets = buckets;
    this.memory = memory;
    this.order = rank == 0 ? new NamedOrder(lane.peers.nRanks(), options, new Sender()) : null;
  }

  /** Sends the verdicts to their ranks: rank 0 applies its own after all others have theirs. */
  private final class Sender implements NamedOrder.Verdicts {
    @Override
    public void begin(int to, List<Long> numbers) {
      if (to == rank) {
        ownVerdicts.add(() -> run(numbers));
      } else {
        WireWriter record = new WireWriter().uint8(0);
        numbers.forEach(number -> record.int32(number.intValue()));
        links.get(to - 1).add(record.toBytes());
      }
    }

    @Override
    public void fail(int to, long number, Failure reason) {
      if (to == rank) {
        ownVerdicts.add(() -> failCalls(List.of(take(number)), exception(reason)));
      } else {
        links.get(to - 1).add(encode(number, reason));
      }
    }
  }

  private static byte[] encode(long number, Failure reason) {
    byte[] text = reason.text().getBytes(StandardCharsets.UTF_8);
    return new WireWriter()
        .uint8(1 + reason.code().ordinal())
        .int64(number)
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

  /** Sends a record now. */
  private void send(NamedLink link, byte[] message) {
    link.add(message);
    flush(link);
  }

  /**
   * Sends the records of a link. A failure is handled at the end of the cycle, because the peer may
   * have left; a rank that rank 0 knows to have left may have ended.
   */
  private int flush(NamedLink link) {
    try {
      return link.flush();
    } catch (FluxCclException e) {
      if (isGone(link)) {
        LOG.debug("rank {}: rank {} left before it had all records", rank, link.peer(), e);
        link.clear();
      } else {
        linkFailure = linkFailure == null ? e : linkFailure;
      }
      return 0;
    }
  }

  private boolean isGone(NamedLink link) {
    return order != null && order.isGone(link.peer());
  }

  // ---- any thread ----

  /** Announces a call; it begins when all ranks have. */
  void submit(NamedCall call) {
    if (order != null) {
      call.limitFrom(orderNanos());
    }
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

  /** Adds this rank's waiting calls to a snapshot: the longest waits, and the number of all. */
  Snapshot waits(Snapshot state) {
    List<Snapshot> all =
        announced.values().stream()
            .map(NamedCall::snapshot)
            .sorted(Comparator.comparingLong(call -> -call.number("since_ns")))
            .toList();
    return state
        .with("named", all.subList(0, Math.min(MOST_SHOWN, all.size())))
        .with("named_all", all.size());
  }

  private void over() {
    inFlight.getAndDecrement();
    if (isHolding) {
      wake();
    }
  }

  // ---- this thread ----

  private void run(List<Long> numbers) {
    inFlight.getAndIncrement();
    NamedCall.run(numbers.stream().map(this::take).toList(), lane, buckets, this::over);
  }

  private void accept(NamedCall call) {
    if (failure != null) {
      failCalls(List.of(call), failure);
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
      work += receive() + announce() + decide() + look();
    }
    if (failure == null || leaveNanos != 0) {
      work += sendWaiting();
    }
    applyOwn();
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
      long number = Integer.toUnsignedLong(numbers++);
      call.start(clockNanos);
      announced.put(number, call);
      if (order != null) {
        order.announced(rank, call.announcement(number), call.limitFromNanos());
      } else {
        links.get(0).add(encode(call.announcement(number)));
      }
      sent++;
    }
    return sent;
  }

  /** Begins all-reduces that all ranks have announced. */
  private int decide() {
    if (order == null || !order.hasReady()) {
      isHolding = false;
      return 0;
    }
    // Set before the load: an operation that ends after it wakes this thread.
    isHolding = true;
    int begun = order.decide(inFlight.get());
    isHolding = order.hasReady();
    return begun;
  }

  private void applyOwn() {
    for (Runnable next = ownVerdicts.poll(); next != null; next = ownVerdicts.poll()) {
      next.run();
    }
  }

  private int receive() {
    int done = 0;
    for (NamedLink link : links) {
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

  private int sendWaiting() {
    int sent = 0;
    for (NamedLink link : links) {
      // The last records to a rank that leaves may have found its ring full.
      sent += isGone(link) && !link.hasWaiting() ? 0 : flush(link);
    }
    return sent;
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
      order.announced(link.peer(), call, orderNanos());
    }
  }

  private void receiveVerdict(WireReader in) {
    heardNanos = clockNanos;
    int code = in.uint8("code");
    in.check(code <= ErrorCode.values().length, "code", Integer.toString(code));
    if (code == 0) {
      run(readBegun(in, announced, buckets == null ? 0 : buckets.bytes()));
      return;
    }
    long number = in.int64("number");
    if (number != LEFT) {
      requireKnown(in, number, announced);
    }
    ErrorCode kind = ErrorCode.values()[code - 1];
    int origin = in.int32("rank");
    Failure reason = new Failure(kind, origin, in.string("text", MOST_TEXT_BYTES));
    in.end();
    if (number != LEFT) {
      failCalls(List.of(take(number)), exception(reason));
    } else if (leaveNanos != 0) {
      endLeave();
    } else {
      failAll(exception(reason));
    }
  }

  /**
   * Returns the clock of rank 0's limits: real time, and the virtual time that a test adds. Any
   * thread.
   */
  private long orderNanos() {
    Scheduler timers = Schedulers.single();
    if (!Deadline.isReal(timers)) {
      addVirtualTime(timers);
    }
    return System.nanoTime() + virtualPassed;
  }

  private synchronized void addVirtualTime(Scheduler timers) {
    long virtual = timers.now(TimeUnit.NANOSECONDS);
    virtualPassed += timers == virtualTimers ? virtual - virtualNanos : 0;
    virtualNanos = virtual;
    virtualTimers = timers;
  }

  /**
   * Reads the numbers of calls to begin. Refuses a bucket that {@link NamedOrder} never forms,
   * before a call of it is removed.
   *
   * @param bucketBytes most bytes of a bucket; 0 if no calls are fused
   */
  static List<Long> readBegun(WireReader in, Map<Long, NamedCall> announced, long bucketBytes) {
    Set<Long> numbers = new LinkedHashSet<>();
    long what = 0;
    long bytes = 0;
    boolean isBucket = true;
    do {
      long number = Integer.toUnsignedLong(in.int32("number"));
      requireKnown(in, number, announced);
      in.check(numbers.add(number), "number", "the same twice");
      Announcement call = announced.get(number).announcement(number);
      what = numbers.size() == 1 ? call.what() : what;
      long own = CallSignature.allReduceBytes(call.what(), call.count());
      isBucket &= own > 0 && call.what() == what;
      bytes += NamedBuckets.padded(own);
    } while (in.remaining() > 0);
    isBucket &= bytes <= bucketBytes && numbers.size() <= NamedBuckets.MOST_MEMBERS;
    if (numbers.size() > 1 && !isBucket) {
      in.check(false, "numbers", numbers + ", which can't be one bucket");
    }
    return List.copyOf(numbers);
  }

  private static void requireKnown(WireReader in, long number, Map<Long, NamedCall> announced) {
    in.check(announced.containsKey(number), "number", Long.toString(number));
  }

  /** Fails calls that are late. */
  private int look() {
    if (order != null) {
      return order.tick(orderNanos());
    }
    if (leaveNanos != 0 && clockNanos - leaveNanos > LEAVE_TIMEOUT.toNanos()) {
      endLeave();
      return 1;
    }
    if (clockNanos - lookNanos < GRACE_NANOS) {
      return 0;
    }
    lookNanos = clockNanos;
    // Rank 0 may let all-reduces wait for operations that are in flight here, too.
    if (inFlight.get() > 0 || clockNanos - heardNanos < GRACE_NANOS) {
      return 0;
    }
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
            "named call '%s' on rank %s: rank 0, which decides the order, has not answered within"
                + " the time limit and %s s; see by fluxccl dump what it does",
            late.name(),
            rank,
            TimeUnit.NANOSECONDS.toSeconds(GRACE_NANOS));
    communicator.abort(reason);
    failAll(reason);
  }

  @Override
  protected boolean mayEnd() {
    boolean isLate = clockNanos - leaveNanos > LEAVE_TIMEOUT.toNanos();
    return isLate || linkFailure != null || isAloneInJob() || !hasWaiting();
  }

  /** Returns whether an operation has ended for which all-reduces waited. */
  @Override
  protected boolean hasPosts() {
    return isHolding && inFlight.get() < NamedOrder.MOST_IN_FLIGHT;
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
      isHolding = false;
      List<NamedCall> all = new ArrayList<>(announced.values());
      all.addAll(waiting);
      announced.clear();
      waiting.clear();
      ownVerdicts.clear();
      failCalls(all, reason);
      if (leaveNanos != 0) {
        end(this::free);
      }
    }
  }

  /**
   * Fails calls. If the reason is that another rank has left, prefers the job's failure: code that
   * throws closes its named collectives before its group aborts.
   */
  private void failCalls(List<NamedCall> calls, FluxCclException reason) {
    boolean hasLeft = reason instanceof Aborted && reason.rank() != rank;
    if (hasLeft && news == null) {
      news = communicator.verdict(reason);
    }
    (hasLeft ? news : CompletableFuture.completedFuture(reason))
        .thenRun(
            () -> {
              FluxCclException job = communicator.failure();
              boolean isKept = !hasLeft || job == null || communicator.isClosed();
              calls.forEach(call -> call.fail((isKept ? reason : job).again()));
            });
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
      endLeave();
    } else if (order == null) {
      send(links.get(0), encode(new Announcement("", 0, 0, 0, 0)));
    } else {
      order.left(rank);
      applyOwn();
      Failure reason =
          new Failure(ErrorCode.ABORTED, rank, "of any name: rank 0 has closed its own");
      links.stream()
          .filter(link -> !isGone(link))
          .forEach(link -> send(link, encode(LEFT, reason)));
      endLeave();
    }
  }

  private void endLeave() {
    failAll(closed());
    end(this::free);
  }

  /**
   * The last task. Rank 0's records must arrive before its connections end. A flush may end on the
   * network's thread, which must not wait for a close that itself waits for this thread.
   */
  private void free() {
    Stream<NamedLink> told = order == null || isAloneInJob() ? Stream.empty() : links.stream();
    CompletableFuture.allOf(
            told.filter(link -> !isGone(link))
                .map(link -> link.flush(LEAVE_TIMEOUT))
                .toArray(CompletableFuture<?>[]::new))
        .whenCompleteAsync(
            (done, late) -> {
              try {
                Closing.all(() -> Closing.all(links), memory, buckets, lane);
              } catch (RuntimeException | Error e) {
                LOG.warn("rank {}: named collectives were not closed completely", rank, e);
              } finally {
                ended.complete(null);
              }
            },
            BlockingTasks.EXECUTOR);
  }

  private boolean isAloneInJob() {
    return communicator.failure() != null || communicator.isClosed();
  }
}
