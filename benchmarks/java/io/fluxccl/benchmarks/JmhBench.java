// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.InvalidUsage;
import java.util.List;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.options.CommandLineOptions;

/** The micro-benchmarks of this package, by JMH; the arguments are those of JMH. */
final class JmhBench {
  static final Bench BENCH =
      Bench.onHost(
          "jmh",
          "micro-benchmarks by JMH: the proxy loop, the flight recorder; in a checkout only",
          JmhBench::run);

  private JmhBench() {}

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    try {
      Class.forName("org.openjdk.jmh.runner.Runner");
    } catch (ClassNotFoundException e) {
      throw new InvalidUsage("JMH is not on the class path; run this in a checkout", e);
    }
    Jmh.run(rows, arguments);
  }

  /** Needs JMH's classes, which the bundle lacks. */
  private static final class Jmh {
    static void run(Bench.Rows rows, List<String> arguments) throws Exception {
      CommandLineOptions options = new CommandLineOptions(arguments.toArray(String[]::new));
      for (RunResult result : new Runner(options).run()) {
        String name = result.getParams().getBenchmark().replaceAll(".*\\.([^.]+\\.[^.]+)$", "$1");
        add(rows, name, result.getPrimaryResult());
        result.getSecondaryResults().forEach((more, each) -> add(rows, name + ", " + more, each));
      }
    }

    private static void add(Bench.Rows rows, String what, Result<?> result) {
      rows.add(what, result.getScore(), result.getScoreUnit());
    }
  }
}
