// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.DoubleSupplier;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.agrona.collections.ArrayUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The last calls of one rank, in a ring of numbers that is allocated once. Recording a call
 * allocates nothing and takes no lock; a reader copies what is consistent and leaves out what is
 * being overwritten. Each end of a call also makes a JFR event and is passed to the {@link
 * CallListener}s. Thread-safe.
 *
 * <p>An entry has {@value #WORDS} words. Its first one holds the call's sequence and outcome. A
 * thread that records a call first claims the entry there, by a compare-and-set, and publishes it
 * there last, with release. A reader reads this word with acquire before the others, and again
 * after them. A call is not recorded if its entry is still claimed by a thread that was stopped for
 * a whole round of the ring. Until a call ends, its end times hold its negative sequence, so that a
 * late end can't change another call's entry.
 */
public final class FlightRecorder {
  private static final Logger LOG = LoggerFactory.getLogger(FlightRecorder.class);

  /** The environment variable that holds how many calls are kept; 0 switches the recorder off. */
  public static final String VARIABLE = "FLUXCCL_RECORDER";

  /** The default number of calls that are kept. */
  public static final int DEFAULT_CALLS = 1024;

  /** The most calls that can be kept. */
  public static final int MOST_CALLS = 1 << 20;

  private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);
  private static final int WORDS = 9;
  private static final int LANE_AND_NAMES = 1;
  private static final int FIRST = 2;
  private static final int LAST = 3;
  private static final int BYTES = 4;
  private static final int ENQUEUED = 5;
  private static final int ENDED = 6;
  private static final int DEVICE_BEGUN = 7;
  private static final int DEVICE_ENDED = 8;

  /** The bits of the first word that hold the outcome, or that the entry is being written. */
  private static final int OUTCOME_BITS = 3;

  private static final int OUTCOME_MASK = (1 << OUTCOME_BITS) - 1;

  /** In place of the outcome: the entry is being written. */
  private static final int BEGINNING = 7;

  /** A word holds the tag of a lane and three numbers of names, of ten bits each. */
  static final int KIND = 2;

  static final int TYPE = 1;
  static final int ALGORITHM = 0;
  private static final int NAME_BITS = 10;
  private static final int NAME_MASK = (1 << NAME_BITS) - 1;

  private static final Outcome[] OUTCOMES = Outcome.values();

  final int rank;
  final IntSupplier waitedFor;
  private final int mask;
  private final long[] ring;
  private final boolean deviceTimes;
  private final AtomicLong sequences = new AtomicLong();

  /** Names of kinds, types and algorithms by number, so that the ring can hold them. */
  private final CopyOnWriteArrayList<String> names = new CopyOnWriteArrayList<>(List.of(""));

  private final List<Supplier<Snapshot>> lanes = new CopyOnWriteArrayList<>();
  private final List<DoubleSupplier> proxies = new CopyOnWriteArrayList<>();

  /** An array, which the hot path iterates over without an iterator. Replaced as a whole. */
  private volatile CallListener[] listening = {};

  /**
   * Creates a recorder.
   *
   * @param rank whose calls these are, for JFR events
   * @param waitedFor returns the rank for which kernels last began to wait long, or -1
   * @param calls how many it keeps, rounded up to a power of two; 0: none
   * @param deviceTimes whether lanes also report the device's times of calls
   */
  public FlightRecorder(int rank, IntSupplier waitedFor, int calls, boolean deviceTimes) {
    this.rank = rank;
    this.waitedFor = waitedFor;
    int size = calls <= 0 ? 0 : Integer.highestOneBit(Math.max(1, calls - 1)) << 1;
    this.mask = size - 1;
    this.ring = new long[size * WORDS];
    this.deviceTimes = deviceTimes && size > 0;
  }

  /** Returns whether it records. */
  public boolean isOn() {
    return ring.length > 0;
  }

  /** Returns whether lanes also report the device's times of calls. */
  public boolean wantsDeviceTimes() {
    return deviceTimes;
  }

  /**
   * Returns the number of a name of a kind, a type or an algorithm; that of no name after {@value
   * #NAME_MASK} others. For set-up.
   */
  public int number(String name) {
    names.addIfAbsent(name);
    int number = names.indexOf(name);
    return number > NAME_MASK ? 0 : number;
  }

  /** Returns the name of a number. */
  public String name(int number) {
    return number < names.size() ? names.get(number) : "";
  }

  /** Returns the tag of the lane that a word of the ring holds. */
  static int lane(long packed) {
    return (int) (packed >> 3 * NAME_BITS);
  }

  /** Returns one of the numbers of names that a word of the ring holds. */
  static int number(long packed, int part) {
    return (int) (packed >> part * NAME_BITS) & NAME_MASK;
  }

  /** Returns one of the names that a word of the ring holds. */
  String name(long packed, int part) {
    return name(number(packed, part));
  }

  /**
   * Adds a lane.
   *
   * @param lane returns its {@code tag}, the same on all ranks; the numbers of its last collectives
   *     that were {@code enqueued} and are {@code done}; and how many calls are {@code in_flight}.
   *     Any thread calls it, so it must take no lock
   */
  public void add(Supplier<Snapshot> lane) {
    lanes.add(lane);
  }

  /** Removes a lane that is closed. Its calls stay. */
  public void remove(Supplier<Snapshot> lane) {
    lanes.remove(lane);
  }

  /** Adds a proxy of this rank; {@code duty} returns its duty since the last call. */
  public void addProxy(DoubleSupplier duty) {
    proxies.add(duty);
  }

  /** Removes a proxy. */
  public void removeProxy(DoubleSupplier duty) {
    proxies.remove(duty);
  }

  /** Returns the largest share, of all proxies, of cycles since the last call that found work. */
  public double proxyDuty() {
    return proxies.stream().mapToDouble(DoubleSupplier::getAsDouble).max().orElse(0);
  }

  /** Returns how many calls of all lanes are in flight. */
  public int inFlight() {
    return lanes.stream().mapToInt(lane -> (int) lane.get().number("in_flight")).sum();
  }

  /** Adds a listener to the ends of calls. */
  public synchronized void listen(CallListener listener) {
    listening = ArrayUtil.add(listening, listener);
  }

  /** Removes a listener. */
  public synchronized void forget(CallListener listener) {
    listening = ArrayUtil.remove(listening, listener);
  }

  // ---- the hot path ----

  /**
   * Records a call that was enqueued. Allocates nothing.
   *
   * @param lane the tag of the lane
   * @param kind a number of a name, as {@code type} and {@code algorithm}
   * @param first as in {@link CallRecord}
   * @return its sequence, for {@link #ended}; 0 if nothing is recorded
   */
  public long enqueued(
      int lane, int kind, int type, int algorithm, long bytes, long first, long last) {
    long[] to = ring;
    if (to.length == 0) {
      return 0;
    }
    long sequence = sequences.incrementAndGet();
    int at = ((int) sequence & mask) * WORDS;
    long before;
    do { // again only if the call there has ended in between, which it does once
      before = (long) WORD.getOpaque(to, at);
      if ((before & OUTCOME_MASK) == BEGINNING || before >>> OUTCOME_BITS > sequence) {
        return 0;
      }
    } while (!WORD.compareAndSet(to, at, before, sequence << OUTCOME_BITS | BEGINNING));
    // Before the other words: a reader that sees one of them sees the claim, too.
    VarHandle.storeStoreFence();
    to[at + LANE_AND_NAMES] =
        (long) lane << 3 * NAME_BITS
            | (long) (kind & NAME_MASK) << KIND * NAME_BITS
            | (type & NAME_MASK) << TYPE * NAME_BITS
            | algorithm & NAME_MASK;
    to[at + FIRST] = first;
    to[at + LAST] = last;
    to[at + BYTES] = bytes;
    to[at + ENQUEUED] = System.nanoTime();
    to[at + ENDED] = -sequence;
    to[at + DEVICE_BEGUN] = -sequence;
    to[at + DEVICE_ENDED] = -sequence;
    // Pairs with the acquire in read().
    WORD.setRelease(to, at, sequence << OUTCOME_BITS);
    return sequence;
  }

  /**
   * Records the end of a call. Allocates nothing.
   *
   * @param sequence what {@link #enqueued} returned
   * @param outcome anything but {@link Outcome#IN_FLIGHT}
   * @param begunNs when it began by the device's clock, or 0 if that is not known
   * @param endedNs when it ended by that clock
   */
  public void ended(long sequence, Outcome outcome, long begunNs, long endedNs) {
    if (sequence == 0) {
      return;
    }
    int at = ((int) sequence & mask) * WORDS;
    long[] to = ring;
    long open = sequence << OUTCOME_BITS;
    if ((long) WORD.getAcquire(to, at) != open) {
      return; // it has ended, or a later call has its entry
    }
    long now = System.nanoTime();
    long packed = to[at + LANE_AND_NAMES];
    long bytes = to[at + BYTES];
    long elapsed = now - to[at + ENQUEUED];
    WORD.compareAndSet(to, at + ENDED, -sequence, now);
    if (endedNs != 0) {
      WORD.compareAndSet(to, at + DEVICE_BEGUN, -sequence, begunNs);
      WORD.compareAndSet(to, at + DEVICE_ENDED, -sequence, endedNs);
    }
    if (WORD.compareAndSet(to, at, open, open | outcome.ordinal())) {
      FlightEvents.call(this, packed, bytes, elapsed, outcome);
      for (CallListener each : listening) {
        tell(each, number(packed, KIND), bytes, elapsed, outcome);
      }
    }
  }

  /**
   * Notifies a listener. Catches its exceptions, because the call's subscriber is notified after
   * this.
   */
  private void tell(CallListener listener, int kind, long bytes, long elapsed, Outcome outcome) {
    try {
      listener.ended(kind, bytes, elapsed, outcome);
    } catch (RuntimeException e) {
      forget(listener);
      LOG.warn("call listener {} threw an exception and was removed", listener, e);
    }
  }

  // ---- reading ----

  /** Returns the calls that are kept, the oldest first. */
  public List<CallRecord> calls() {
    long newest = sequences.get();
    long oldest = Math.max(1, newest - mask);
    List<CallRecord> calls = new ArrayList<>();
    Map<Integer, CallRecord> latest = new HashMap<>();
    for (long sequence = oldest; isOn() && sequence <= newest; sequence++) {
      CallRecord call = read(sequence, latest, oldest == 1);
      if (call != null) {
        calls.add(call);
        latest.put(call.lane(), call);
      }
    }
    return List.copyOf(calls);
  }

  /**
   * Returns a group's snapshot with its lanes and calls as they are now.
   *
   * @param group the other fields
   */
  public Snapshot addTo(Snapshot group) {
    Comparator<Snapshot> byTag = Comparator.comparingLong(lane -> lane.number("tag"));
    Snapshot withLanes =
        group.with("lanes", lanes.stream().map(Supplier::get).sorted(byTag).toList());
    List<CallRecord> calls = calls();
    long now = System.nanoTime();
    return withLanes
        .with("calls", calls.stream().map(call -> call.tree(now)).toList())
        .with("now_ns", now);
  }

  /**
   * Returns when a call could begin: those of a lane run in order.
   *
   * @param before the call before it on its lane, or null
   * @param isFirst whether it is the first of its lane if there is none before it
   */
  private static long begun(long enqueued, CallRecord before, boolean isFirst) {
    if (before == null) {
      return isFirst ? enqueued : 0;
    }
    return before.isInFlight() ? 0 : Math.max(enqueued, before.endedNs());
  }

  private CallRecord read(long sequence, Map<Integer, CallRecord> latest, boolean isComplete) {
    int at = ((int) sequence & mask) * WORDS;
    long state = (long) WORD.getAcquire(ring, at);
    int how = (int) state & OUTCOME_MASK;
    if (state >>> OUTCOME_BITS != sequence || how == BEGINNING) {
      return null; // it is being written, or overwritten, or was left out
    }
    long packed = ring[at + LANE_AND_NAMES];
    long first = ring[at + FIRST];
    long last = ring[at + LAST];
    long bytes = ring[at + BYTES];
    long enqueued = ring[at + ENQUEUED];
    long ended = ring[at + ENDED];
    long deviceBegun = ring[at + DEVICE_BEGUN];
    long deviceEnded = ring[at + DEVICE_ENDED];
    // Pairs with the fence in enqueued(): the words above belong to the state that is read below.
    VarHandle.loadLoadFence();
    if ((long) WORD.getOpaque(ring, at) >>> OUTCOME_BITS != sequence) {
      return null;
    }
    Outcome outcome = OUTCOMES[how];
    boolean isTimed = outcome != Outcome.IN_FLIGHT && deviceEnded != -sequence;
    return new CallRecord(
        lane(packed),
        sequence,
        first,
        last,
        name(packed, KIND),
        name(packed, TYPE),
        name(packed, ALGORITHM),
        bytes,
        enqueued,
        begun(enqueued, latest.get(lane(packed)), isComplete),
        outcome == Outcome.IN_FLIGHT ? 0 : ended,
        isTimed ? deviceBegun : 0,
        isTimed ? deviceEnded : 0,
        outcome);
  }

  /** Receives the end of each call of a rank. */
  @FunctionalInterface
  public interface CallListener {
    /**
     * Called on the thread that completes the call; must not block, and should not allocate. A
     * listener that throws is logged and removed.
     *
     * @param kind the number of its name; {@link FlightRecorder#name}
     * @param bytes as in {@link CallRecord}
     * @param elapsedNs from its enqueueing to its end
     * @param outcome how it has ended
     */
    void ended(int kind, long bytes, long elapsedNs, Outcome outcome);
  }
}
