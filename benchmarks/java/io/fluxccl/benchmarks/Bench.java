// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Text;
import java.math.BigDecimal;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;

/**
 * A benchmark, which {@code fluxccl bench ID} runs in one process for each of its ranks.
 *
 * @param id its name on the command line
 * @param what it measures, in a line
 * @param gpus how many GPUs it needs
 * @param ranks how many processes it has
 * @param seconds after which it is stopped
 * @param run its work, the same in each process
 */
public record Bench(String id, String what, int gpus, int ranks, int seconds, Run run) {
  private static final int SECONDS = 600;
  private static final int SECONDS_ON_GPUS = 90;

  /** The work of a benchmark. */
  @FunctionalInterface
  public interface Run {
    /**
     * Measures, and adds each row as soon as it is known.
     *
     * @param rows takes them; those of rank 0 count
     * @param arguments of the command line
     */
    void run(Rows rows, List<String> arguments) throws Exception;
  }

  /** Returns a benchmark on the host, in one process. */
  static Bench onHost(String id, String what, Run run) {
    return new Bench(id, what, 0, 1, SECONDS, run);
  }

  /** Returns a benchmark on GPUs, in one process. */
  public static Bench onGpus(int gpus, String id, String what, Run run) {
    return new Bench(id, what, gpus, 1, SECONDS_ON_GPUS, run);
  }

  /** Returns the benchmark with another number of processes. */
  public Bench inRanks(int count) {
    return new Bench(id, what, gpus, count, seconds, run);
  }

  /** Returns the benchmark with another time limit. */
  public Bench within(int limit) {
    return new Bench(id, what, gpus, ranks, limit, run);
  }

  /** The benchmarks of this package. */
  public static final List<Bench> ALL =
      List.of(
          FifoBench.BENCH,
          HostBench.BENCH,
          ChannelBench.BENCH,
          BandwidthBench.BENCH,
          LatencyBench.BENCH,
          HostCollectives.BENCH,
          HostCollectives.IN_TURN,
          StepBench.BENCH,
          NamedBench.ON_HOST,
          NamedBench.ON_GPUS,
          ProductBench.ON_TWO,
          ProductBench.ON_FOUR,
          EthernetLoopback.BENCH,
          NettyTlsLoopback.BENCH,
          TcpNetLoopback.BENCH,
          IbLoopback.BENCH,
          ProxyWake.BENCH,
          RecorderCost.BENCH,
          BootstrapScale.BENCH,
          ManyRanks.BENCH,
          JmhBench.BENCH);

  /** Takes the rows of a benchmark. */
  public static final class Rows {
    private final String bench;
    private final Consumer<Row> sink;

    /**
     * Takes rows.
     *
     * @param bench the id of the benchmark
     * @param sink takes each row
     */
    public Rows(String bench, Consumer<Row> sink) {
      this.bench = bench;
      this.sink = sink;
    }

    /** Adds a number without a goal. */
    public void add(String what, double value, String unit) {
      add(what, value, unit, "");
    }

    /** Adds a number with a goal such as {@code <= 3.6}. */
    public void add(String what, double value, String unit, String goal) {
      add(what, value, unit, goal, "");
    }

    /** Adds a number with a goal, which may be empty, and a remark, which may be empty, too. */
    public void add(String what, double value, String unit, String goal, String note) {
      String whole = goal.isEmpty() ? "" : "ours " + goal;
      sink.accept(
          Row.of(
              "id", id(what), "what", what, "ours", value, "unit", unit, "goal", whole, "note",
              note));
    }

    /** Adds percentiles of samples, which are sorted; share 1 is the worst. */
    void percentiles(String what, double[] samples, String unit, double... shares) {
      for (double share : shares) {
        String name =
            share == 1
                ? "worst"
                : Text.of(
                    "p%s",
                    BigDecimal.valueOf(share)
                        .movePointRight(2)
                        .stripTrailingZeros()
                        .toPlainString());
        add(what + ", " + name, Samples.percentile(samples, share), unit);
      }
    }

    /**
     * Adds two numbers of one run.
     *
     * @param what was measured
     * @param ours our number
     * @param peer the other one's
     * @param unit of both
     * @param against the other one's name
     * @param goal of our number divided by the other one's, such as {@code >= 0.95}; may be empty
     */
    public void compare(
        String what, double ours, double peer, String unit, String against, String goal) {
      String whole = goal.isEmpty() ? "" : "ratio " + goal;
      sink.accept(
          Row.of(
              "id",
              id(what),
              "what",
              what,
              "ours",
              ours,
              "peer",
              peer,
              "ratio",
              ours / peer,
              "unit",
              unit,
              "against",
              against,
              "goal",
              whole));
    }

    private String id(String what) {
      String words = what.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9./]+", "-");
      return bench + "/" + words.replaceAll("^-|-$", "");
    }
  }
}
