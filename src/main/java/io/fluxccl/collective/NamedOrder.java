// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.ErrorCode;
import io.fluxccl.Text;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedList;
import java.util.List;
import java.util.ListIterator;
import java.util.Map;
import java.util.Queue;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Decides the one order in which all ranks begin their named calls: a call begins when every rank
 * has announced it. Rank 0 has it. Pure: announcements and times in, {@link Verdicts} out.
 *
 * <p>All-reduces that every rank has announced wait while {@link #MOST_IN_FLIGHT} operations of
 * rank 0 are not done. Then small ones of one type and operation are fused. So buckets form while
 * the device is busy, and no call waits for an idle device.
 *
 * <p>A rank's announcement of a name belongs to the first call of that name that it has not
 * announced. If that call has failed, the rank gets the failure, unless other ranks have repeated
 * the call: then it takes part in the repetition.
 */
final class NamedOrder {
  private static final long ABSENT = -1;
  private static final long SKIPPED = -2;

  /** The most failed calls that are kept for ranks that announce them later. */
  static final int MOST_FAILED = 10_000;

  /** The most ranks that a message lists. */
  private static final int LISTED = 8;

  /** Operations in flight from which on all-reduces wait: a device with fewer might idle. */
  static final int MOST_IN_FLIGHT = 4;

  /** Receives the verdicts on announced calls. Every rank must apply them in this order. */
  interface Verdicts {
    /** A rank begins calls that it has announced; several of them as one bucket. */
    void begin(int rank, List<Long> numbers);

    /** A call that a rank has announced, fails. */
    void fail(int rank, long number, Failure failure);
  }

  /** The failure of a call. */
  record Failure(ErrorCode code, int rank, String text) {}

  /**
   * The announcement of a call by a rank.
   *
   * @param number of the call on its rank
   * @param what the first number of the {@link CallSignature}
   * @param count the second one
   * @param limitNanos how long the call may wait for other ranks
   */
  record Announcement(String name, long number, long what, long count, long limitNanos) {}

  /** One call of a name. */
  private static final class Call {
    final Announcement first;
    final int firstRank;
    final long[] numbers;
    int present;

    /** Set when every rank has announced it. */
    int priority;

    long deadlineNanos = Long.MAX_VALUE;
    Failure failure;

    Call(Announcement first, int rank, int nRanks) {
      this.first = first;
      this.firstRank = rank;
      this.numbers = new long[nRanks];
      Arrays.fill(numbers, ABSENT);
    }

    String name() {
      return first.name();
    }

    List<Integer> ranks(boolean present) {
      return IntStream.range(0, numbers.length)
          .filter(rank -> (numbers[rank] != ABSENT) == present)
          .boxed()
          .toList();
    }
  }

  private final int nRanks;
  private final NamedOptions options;
  private final Verdicts verdicts;

  /** The calls that some rank has not announced yet, by name, in their order. */
  private final Map<String, Deque<Call>> open = new HashMap<>();

  /** All-reduces that every rank has announced: by priority, and then in their order. */
  private final List<Call> ready = new LinkedList<>();

  /** Failed calls, the oldest first; some of them are no longer open. */
  private final Queue<Call> failed = new ArrayDeque<>();

  private final boolean[] gone;

  /** The first rank that has left, or {@link #ABSENT}: no call can begin any more. */
  private int firstGone = (int) ABSENT;

  /** No deadline is earlier. */
  private long nextDeadlineNanos = Long.MAX_VALUE;

  NamedOrder(int nRanks, NamedOptions options, Verdicts verdicts) {
    this.nRanks = nRanks;
    this.options = options;
    this.verdicts = verdicts;
    this.gone = new boolean[nRanks];
  }

  /** Returns the number of calls that some rank has not announced yet, failed ones included. */
  int openCalls() {
    return open.values().stream().mapToInt(Deque::size).sum();
  }

  /** A rank has announced a call. */
  void announced(int rank, Announcement announcement, long now) {
    if (firstGone != ABSENT) {
      verdicts.fail(rank, announcement.number(), gone(announcement.name()));
      return;
    }
    Deque<Call> calls = open.computeIfAbsent(announcement.name(), name -> new ArrayDeque<>());
    Call call = next(calls, rank);
    if (call == null) {
      call = new Call(announcement, rank, nRanks);
      calls.add(call);
    }
    call.numbers[rank] = announcement.number();
    call.present++;
    boolean isSame =
        announcement.what() == call.first.what() && announcement.count() == call.first.count();
    if (call.failure != null) {
      verdicts.fail(rank, announcement.number(), call.failure);
    } else if (!isSame) {
      fail(call, difference(call, rank, announcement));
    } else if (call.present == nRanks) {
      isReady(call);
    } else {
      setDeadline(call, announcement.limitNanos(), now);
    }
    if (call.present == nRanks) {
      calls.remove(call);
      dropIfEmpty(announcement.name());
    }
    forgetOldFailures();
  }

  private void dropIfEmpty(String name) {
    open.computeIfPresent(name, (same, left) -> left.isEmpty() ? null : left);
  }

  /** Drops the oldest failed calls of many: the ranks that lack them may never announce them. */
  private void forgetOldFailures() {
    while (failed.size() > MOST_FAILED) {
      Call oldest = failed.remove();
      open.getOrDefault(oldest.name(), new ArrayDeque<>()).remove(oldest);
      dropIfEmpty(oldest.name());
    }
  }

  /**
   * Returns the call to which a rank's next announcement belongs; null for a new one. The rank
   * takes no part in failed calls that others have repeated.
   */
  private Call next(Deque<Call> calls, int rank) {
    Call failed = null;
    for (Call call : calls) {
      if (call.numbers[rank] == ABSENT && call.failure == null) {
        calls.stream().takeWhile(each -> each != call).forEach(each -> skip(each, rank));
        calls.removeIf(each -> each.present == nRanks);
        return call;
      }
      failed = failed == null && call.numbers[rank] == ABSENT ? call : failed;
    }
    return failed;
  }

  private static void skip(Call call, int rank) {
    if (call.numbers[rank] == ABSENT) {
      call.numbers[rank] = SKIPPED;
      call.present++;
    }
  }

  private void isReady(Call call) {
    if (options.bucketBytes() == 0 || allReduceBytes(call) < 0) {
      begin(List.of(call));
      return;
    }
    call.priority = options.priorityOf(call.name());
    ListIterator<Call> last = ready.listIterator(ready.size());
    while (last.hasPrevious()) {
      if (last.previous().priority >= call.priority) {
        last.next();
        break;
      }
    }
    last.add(call);
  }

  /**
   * Begins all-reduces that every rank has announced.
   *
   * @param inFlight operations of rank 0 that are not done
   * @return how many operations have begun
   */
  int decide(int inFlight) {
    int begun = 0;
    while (!ready.isEmpty() && inFlight + begun < MOST_IN_FLIGHT) {
      begin(nextBucket());
      begun++;
    }
    return begun;
  }

  boolean hasReady() {
    return !ready.isEmpty();
  }

  private List<Call> nextBucket() {
    Call first = ready.remove(0);
    List<Call> bucket = new ArrayList<>(List.of(first));
    long bytes = NamedBuckets.padded(allReduceBytes(first));
    boolean isSmall = bytes > 0 && bytes <= options.memberBytes();
    Iterator<Call> rest = ready.iterator();
    while (isSmall && rest.hasNext() && bucket.size() < NamedBuckets.MOST_MEMBERS) {
      Call next = rest.next();
      long more = NamedBuckets.padded(allReduceBytes(next));
      if (next.first.what() == first.first.what()
          && more > 0
          && more <= options.memberBytes()
          && bytes + more <= options.bucketBytes()) {
        rest.remove();
        bucket.add(next);
        bytes += more;
      }
    }
    return bucket;
  }

  private static long allReduceBytes(Call call) {
    return CallSignature.allReduceBytes(call.first.what(), call.first.count());
  }

  private void begin(List<Call> calls) {
    for (int rank = 0; rank < nRanks; rank++) {
      List<Long> numbers = new ArrayList<>(calls.size());
      for (Call call : calls) {
        numbers.add(call.numbers[rank]);
      }
      verdicts.begin(rank, numbers);
    }
  }

  private void setDeadline(Call call, long limit, long now) {
    if (now <= 0 || limit <= Long.MAX_VALUE - now) {
      call.deadlineNanos = Math.min(call.deadlineNanos, now + limit);
      nextDeadlineNanos = Math.min(nextDeadlineNanos, call.deadlineNanos);
    }
  }

  boolean isGone(int rank) {
    return gone[rank];
  }

  /**
   * A rank takes part in no more calls, and gets no more verdicts. Calls that all ranks have
   * announced begin before that.
   */
  void left(int rank) {
    decide(-ready.size());
    gone[rank] = true;
    firstGone = firstGone == ABSENT ? rank : firstGone;
    for (Deque<Call> calls : open.values()) {
      calls.stream()
          .filter(call -> call.failure == null)
          .forEach(call -> fail(call, gone(call.name())));
    }
    open.clear();
    failed.clear();
  }

  private Failure gone(String name) {
    String text = Text.of("'%s': rank %s has closed its named collectives", name, firstGone);
    return new Failure(ErrorCode.ABORTED, firstGone, text);
  }

  /** Fails the calls whose time is over. Returns how many. */
  int tick(long now) {
    if (now < nextDeadlineNanos) {
      return 0;
    }
    int late = 0;
    nextDeadlineNanos = Long.MAX_VALUE;
    for (Deque<Call> calls : open.values()) {
      for (Call call : calls) {
        if (call.failure == null && now >= call.deadlineNanos) {
          fail(call, timeout(call));
          late++;
        } else if (call.failure == null) {
          nextDeadlineNanos = Math.min(nextDeadlineNanos, call.deadlineNanos);
        }
      }
    }
    forgetOldFailures();
    return late;
  }

  private void fail(Call call, Failure failure) {
    call.failure = failure;
    failed.add(call);
    for (int rank = 0; rank < nRanks; rank++) {
      if (call.numbers[rank] >= 0 && !gone[rank]) {
        verdicts.fail(rank, call.numbers[rank], failure);
      }
    }
  }

  private static Failure timeout(Call call) {
    List<Integer> missing = call.ranks(false);
    String text =
        Text.of(
            "'%s': ranks %s have not subscribed to it in time, ranks %s have; give every rank the"
                + " same names",
            call.name(), list(missing, LISTED), list(call.ranks(true), LISTED));
    return new Failure(ErrorCode.TIMEOUT, missing.get(0), text);
  }

  /** Returns the first of some objects as a text, and the number of the others. */
  static String list(List<?> all, int most) {
    String shown = all.stream().limit(most).map(String::valueOf).collect(Collectors.joining(", "));
    int more = all.size() - most;
    return more > 0 ? Text.of("[%s and %s more]", shown, more) : "[" + shown + "]";
  }

  private static Failure difference(Call call, int rank, Announcement other) {
    Announcement first = call.first;
    String mine = CallSignature.text(first.what(), first.count(), false);
    String theirs = CallSignature.text(other.what(), other.count(), false);
    boolean isHidden = mine.equals(theirs);
    String text =
        Text.of(
            "'%s': rank %s calls %s, rank %s calls %s; call the same on every rank",
            first.name(),
            call.firstRank,
            CallSignature.text(first.what(), first.count(), isHidden),
            rank,
            CallSignature.text(other.what(), other.count(), isHidden));
    return new Failure(ErrorCode.INVALID_USAGE, rank, text);
  }
}
