// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.collective.Collective;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.Stream;

/**
 * One rank of a soak: in each generation it runs random collectives, the same on every rank, and
 * checks its own results. Reports lines that {@link SoakSummary} adds up. Confined to one thread.
 */
final class SoakRank {
  private static final List<Collective> COLLECTIVES = Collective.plain();
  private static final int ROUNDS_BETWEEN_REPORTS = 8;
  private static final int MOST_CALLS = 4;

  /** How a call is made. */
  private enum Mode {
    PLAIN,
    CAPTURED,
    CANCELLED
  }

  private final PerfBackend.RankOptions options;
  private final long maxBytes;
  private final long seed;
  private final long untilMillis;
  private final long halfTimeMillis;
  private final PrintStream out;

  private long wrong;
  private long firstThreads = -1;
  private long firstDescriptors;
  private long firstHeap;
  private long firstResident;

  SoakRank(
      PerfBackend.RankOptions options,
      long maxBytes,
      long seed,
      long untilMillis,
      PrintStream out) {
    this.options = options;
    this.maxBytes = maxBytes;
    this.seed = seed;
    this.untilMillis = untilMillis;
    this.halfTimeMillis = (System.currentTimeMillis() + untilMillis) / 2;
    this.out = out;
  }

  /**
   * Runs until the time is up.
   *
   * @return how many elements were wrong on this rank
   */
  long run() {
    try {
      JoinOptions joining = options.joining().apply(JoinOptions.fromEnvironment());
      RankGroup.generations(joining).toIterable(1).forEach(this::run);
    } catch (FluxCclException e) {
      // A replacement that starts when the time is up finds no other rank.
      if (System.currentTimeMillis() < untilMillis) {
        throw e;
      }
    }
    return wrong;
  }

  private void run(RankGroup generation) {
    try (PerfRank rank = new GroupBackend().rank(generation, options)) {
      new Rounds(rank, generation).run();
    } catch (FluxCclException | CompletionException e) {
      FluxCclException reason = FluxCclException.from(e);
      if (reason instanceof InvalidUsage) {
        throw reason;
      }
      // The next generation begins, or the Flux fails.
    }
  }

  private void say(String kind, long generation, int rank, long one, long two) {
    out.printf(
        Locale.ROOT, "%s%s %d %d %d %d%n", SoakSummary.MARK, kind, generation, rank, one, two);
    out.flush();
  }

  /** Compares threads and descriptors with those of the first report of this process. */
  private void sayLeaks(long generation, int rank) {
    long threads =
        Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("fluxccl-"))
            .count();
    long descriptors = descriptors();
    if (firstThreads < 0) {
      firstThreads = threads;
      firstDescriptors = descriptors;
    }
    say("leak", generation, rank, threads - firstThreads, descriptors - firstDescriptors);
  }

  /**
   * Measures memory after half of the time, when all is warm; at the end reports its growth since
   * then.
   */
  private void sayMemory(long generation, int rank, boolean last) {
    boolean first = firstHeap == 0;
    if (System.currentTimeMillis() < halfTimeMillis || !first && !last) {
      return;
    }
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    long heap = (runtime.totalMemory() - runtime.freeMemory()) / 1024;
    long resident = resident();
    if (first) {
      firstHeap = heap;
      firstResident = resident;
    } else {
      say("memory", generation, rank, heap - firstHeap, resident - firstResident);
    }
  }

  /** Returns the KiB of memory that this process has. */
  private static long resident() {
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
      return lines
          .filter(line -> line.startsWith("VmRSS:"))
          .map(line -> Long.parseLong(line.replaceAll("\\D", "")))
          .findFirst()
          .orElse(0L);
    } catch (IOException e) {
      return 0; // not Linux
    }
  }

  private static long descriptors() {
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.count();
    } catch (IOException e) {
      return 0; // not Linux
    }
  }

  /** The rounds of one generation. */
  private final class Rounds {
    private final PerfRank rank;
    private final long generation;
    private final RankGroup joined;
    private final CompletableFuture<Void> newcomers;
    private final Random random;
    private final Map<List<Object>, BufferContents> contents = new HashMap<>();
    private long collectives;
    private long wrongHere;
    private long cancelled;

    Rounds(PerfRank rank, RankGroup joined) {
      this.joined = joined;
      this.newcomers = joined.newcomers().toFuture();
      this.rank = rank;
      this.generation = joined.generation().number();
      this.random = new Random(31 * seed + generation);
    }

    void run() {
      rank.prepare(BufferContents.sizeFor(maxBytes));
      for (int round = 0; ; round++) {
        PerfCase shape =
            round == 0
                ? new PerfCase(Collective.ALL_REDUCE, 16, DataType.INT32, ReduceOp.SUM, 0)
                : next();
        runOnce(shape);
        if (round == 0) {
          say("ready", generation, rank.rank(), rank.nRanks(), 0);
        }
        if (round % ROUNDS_BETWEEN_REPORTS == ROUNDS_BETWEEN_REPORTS - 1) {
          say("count", generation, rank.rank(), collectives, wrongHere);
          say("cancel", generation, rank.rank(), cancelled, 0);
          boolean last = isOver();
          sayMemory(generation, rank.rank(), last);
          if (last) {
            sayLeaks(generation, rank.rank());
            return;
          }
          if (rank.rank() == 0 && newcomers.isDone()) {
            joined.renew("others wait to take part");
          }
          if (round == ROUNDS_BETWEEN_REPORTS - 1) {
            sayLeaks(generation, rank.rank());
          }
        }
      }
    }

    /** Agrees with the other ranks on whether the time is up. */
    private boolean isOver() {
      byte mine = (byte) (System.currentTimeMillis() >= untilMillis ? 1 : 0);
      return rank.allGather(new byte[] {mine}, Deadline.after(options.timeout())).stream()
          .anyMatch(each -> each[0] == 1);
    }

    /** Returns a random case. Takes the same numbers from {@code random} on every rank. */
    private PerfCase next() {
      Collective collective = COLLECTIVES.get(random.nextInt(COLLECTIVES.size()));
      List<DataType> types = Arrays.asList(DataType.values());
      DataType type = types.get(random.nextInt(types.size()));
      ReduceOp op = ReduceOp.values()[random.nextInt(ReduceOp.values().length)];
      long bytes = (long) Math.pow(2, random.nextDouble() * (Math.log(maxBytes) / Math.log(2)));
      long parts = PerfCase.parts(collective, rank.nRanks()) * type.size();
      int root = collective.hasRoot() ? random.nextInt(rank.nRanks()) : 0;
      if (collective == Collective.BARRIER) {
        return new PerfCase(collective, 0, DataType.INT8, null, 0);
      }
      return new PerfCase(
          collective, Math.max(1, bytes / parts), type, collective.reduces() ? op : null, root);
    }

    private void runOnce(PerfCase shape) {
      BufferAliasing placement =
          BufferAliasing.values()[random.nextInt(BufferAliasing.values().length)];
      if (!placement.isPossible(shape.collective())) {
        placement = BufferAliasing.OUT_OF_PLACE;
      }
      Mode mode = Mode.values()[random.nextInt(Mode.values().length)];
      // In place a second call would have the first one's output as its input.
      int calls = placement == BufferAliasing.IN_PLACE ? 1 : 1 + random.nextInt(MOST_CALLS);
      DataLayout layout = new DataLayout(shape, rank.rank(), rank.nRanks());
      BufferContents data = contents(shape);
      data.upload(layout, placement);
      try (PreparedCalls prepared =
          rank.library().prepare(shape, placement, calls, mode == Mode.CAPTURED)) {
        if (mode == Mode.CANCELLED) {
          prepared.run(1).cancel(false); // the run continues
          cancelled++;
          barrier();
        } else {
          prepared.run(1).join();
        }
      }
      collectives += calls;
      long found = data.wrongElements(layout, placement);
      if (found > 0) {
        System.err.printf(
            "rank %d, generation %d, after %d collectives: %d wrong elements: %s, %s, %s, %d calls%n",
            rank.rank(), generation, collectives, found, shape, placement, mode, calls);
      }
      wrongHere += found;
      wrong += found;
    }

    /** Waits for all that was enqueued before, on every rank. */
    private void barrier() {
      PerfCase shape = new PerfCase(Collective.BARRIER, 0, DataType.INT8, null, 0);
      try (PreparedCalls prepared =
          rank.library().prepare(shape, BufferAliasing.OUT_OF_PLACE, 1, false)) {
        prepared.run(1).join();
      }
      collectives++;
    }

    private BufferContents contents(PerfCase shape) {
      List<Object> key = Arrays.asList(shape.type(), shape.op());
      return contents.computeIfAbsent(
          key,
          absent ->
              new BufferContents(
                  rank,
                  new ReductionPattern(shape.type(), shape.op(), rank.nRanks()),
                  shape.type()));
    }
  }
}
