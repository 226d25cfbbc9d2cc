// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Adds up what the ranks of a soak report on stdout. Thread-safe. */
final class SoakSummary implements LineForwarder.Sink {
  /** The prefix of each line of a report, before a word for its kind, and four numbers. */
  static final String MARK = "soak ";

  private static final Pattern REPORT =
      Pattern.compile(
          MARK
              + "(ready|count|cancel|leak|memory) (\\d{1,18}) (\\d{1,9}) (-?\\d{1,18})"
              + " (-?\\d{1,18})");

  private final PrintStream err;

  // By generation and rank: collectives and wrong elements.
  private final Map<Long, Map<Integer, long[]>> counts = new TreeMap<>();

  // By generation: the most that a rank has cancelled.
  private final Map<Long, Long> cancelled = new HashMap<>();
  private final Map<Long, Set<Integer>> ready = new HashMap<>();
  private final List<Long> recoveriesMillis = new ArrayList<>();
  private final Map<String, Long> leaks =
      new TreeMap<>(
          Map.of("threads", 0L, "descriptors", 0L, "segments", 0L, "heap_kib", 0L, "rss_kib", 0L));
  private long deaths;
  private long doubleKills;

  // Generations whose numbers were given again, and what was done and wrong in them.
  private long forgotten;
  private long collectivesBefore;
  private long wrongBefore;
  private long firstDeathNanos;
  private boolean recovering;

  /**
   * The findings of a soak.
   *
   * @param collectives how many ran
   * @param wrong elements
   * @param generations of the job
   * @param deaths of ranks that were replaced
   * @param doubleKills how often two were killed at once or shortly one after the other
   * @param cancelled runs that were cancelled on each rank, and continued
   * @param medianRecoveryMillis from the first death to the first right result of all ranks of the
   *     next generation; 0 without a death
   * @param leaks how much more there is of each resource than at first
   */
  record Result(
      long collectives,
      long wrong,
      long generations,
      long deaths,
      long doubleKills,
      long cancelled,
      long medianRecoveryMillis,
      long maxRecoveryMillis,
      Map<String, Long> leaks) {
    /**
     * Returns what is wrong, in a sentence; empty if nothing is. A process that becomes the host of
     * the rendezvous has more threads and descriptors; a leak grows with each generation.
     *
     * @param ranks how many the job has
     */
    Optional<String> fault(int ranks) {
      if (wrong > 0) {
        return Optional.of(wrong + " elements were wrong");
      }
      if (collectives == 0) {
        return Optional.of(
            "no collective was counted: no rank reported any; read the lines of the ranks above,"
                + " and give more --seconds if they were still starting");
      }
      long tolerance = 8 + 4L * ranks + generations / 2;
      return leaks.entrySet().stream()
          .filter(leak -> leak.getValue() > limit(leak.getKey(), tolerance))
          .map(leak -> leak.getKey() + " " + leak.getValue())
          .reduce((one, two) -> one + ", " + two)
          .map(all -> "leaked: " + all);
    }

    private static long limit(String resource, long tolerance) {
      return switch (resource) {
        case "segments" -> 0;
        case "threads", "descriptors" -> tolerance;
        default -> Long.MAX_VALUE; // memory is reported only
      };
    }
  }

  SoakSummary(PrintStream err) {
    this.err = err;
  }

  @Override
  public synchronized void line(int rank, boolean error, byte[] line, End end) {
    String text = new String(line, StandardCharsets.UTF_8);
    if (error || !text.startsWith(MARK)) {
      err.println("[" + rank + "] " + text);
      return;
    }
    Matcher report = REPORT.matcher(text);
    // A rank that is killed may leave half a line.
    if (end == End.LINE && report.matches()) {
      add(report);
    }
  }

  private void add(Matcher report) {
    long generation = Long.parseLong(report.group(2));
    int rank = Integer.parseInt(report.group(3));
    long one = Long.parseLong(report.group(4));
    long two = Long.parseLong(report.group(5));
    switch (report.group(1)) {
      case "ready" -> ready(generation, rank, one);
      case "count" -> count(generation, rank, one, two);
      case "cancel" -> cancelled.merge(generation, one, Math::max);
      case "memory" -> {
        leaks.merge("heap_kib", one, Math::max);
        leaks.merge("rss_kib", two, Math::max);
      }
      default -> {
        leaks.merge("threads", one, Math::max);
        leaks.merge("descriptors", two, Math::max);
      }
    }
  }

  private void count(long generation, int rank, long collectives, long wrong) {
    counts
        .computeIfAbsent(generation, absent -> new HashMap<>())
        .put(rank, new long[] {collectives, wrong});
  }

  private void ready(long generation, int rank, long nRanks) {
    Set<Integer> here = ready.computeIfAbsent(generation, absent -> new HashSet<>());
    if (!here.add(rank)) {
      // All ranks died before one of them could inform another of earlier generations.
      here.clear();
      here.add(rank);
      forgotten++;
      keep(counts.remove(generation));
    }
    if (here.size() == nRanks && recovering) {
      recovering = false;
      recoveriesMillis.add(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - firstDeathNanos));
    }
  }

  /** Keeps the counts of a generation whose number is used again; null for none. */
  private void keep(Map<Integer, long[]> byRank) {
    if (byRank != null) {
      collectivesBefore += most(byRank);
      wrongBefore += wrong(byRank);
    }
  }

  private static long most(Map<Integer, long[]> byRank) {
    return byRank.values().stream().mapToLong(each -> each[0]).max().orElse(0);
  }

  private static long wrong(Map<Integer, long[]> byRank) {
    return byRank.values().stream().mapToLong(each -> each[1]).sum();
  }

  @Override
  public synchronized void restarted(int rank) {
    deaths++;
    if (!recovering) {
      recovering = true;
      firstDeathNanos = System.nanoTime();
    }
  }

  /** Sets how many files of shared memory the ranks have left. */
  synchronized void segmentsLeft(long count) {
    leaks.put("segments", count);
  }

  /** Counts that two ranks were killed at once, or shortly one after the other. */
  synchronized void killedTwo() {
    doubleKills++;
  }

  @Override
  public synchronized void notice(String line) {
    err.println(line);
  }

  /** Prints a line with the progress. */
  synchronized void progress() {
    Result now = result();
    err.printf(
        Locale.ROOT,
        "%d collectives, %d wrong, %d generations, %d deaths%n",
        now.collectives,
        now.wrong,
        now.generations,
        now.deaths);
  }

  synchronized Result result() {
    long collectives = collectivesBefore;
    long wrong = wrongBefore;
    for (Map<Integer, long[]> byRank : counts.values()) {
      collectives += most(byRank);
      wrong += wrong(byRank);
    }
    List<Long> sorted = recoveriesMillis.stream().sorted().toList();
    return new Result(
        collectives,
        wrong,
        ready.size() + forgotten,
        deaths,
        doubleKills,
        cancelled.values().stream().mapToLong(Long::longValue).sum(),
        sorted.isEmpty() ? 0 : sorted.get(sorted.size() / 2),
        sorted.isEmpty() ? 0 : sorted.get(sorted.size() - 1),
        new TreeMap<>(leaks));
  }
}
