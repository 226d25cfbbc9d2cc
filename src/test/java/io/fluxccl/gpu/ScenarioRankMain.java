// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import java.io.PrintWriter;
import java.io.StringWriter;

/**
 * One rank in its own process: runs scenarios one after the other until one fails, and prints the
 * result of each. Started by {@link ScenarioProcesses}.
 */
final class ScenarioRankMain {
  private ScenarioRankMain() {}

  /** Arguments: the number of GPUs, then the scenarios. */
  public static void main(String[] args) throws Exception {
    RankEnvironment environment = RankEnvironment.fromEnvironment();
    int gpus = Integer.parseInt(args[0]);
    BootstrapOptions.Builder options = BootstrapOptions.builder().timeout(GpuRank.PATIENCE);
    environment.secret().ifPresent(options::secret);
    String running = "(none)";
    try (TcpBootstrap bootstrap =
        TcpBootstrap.create(environment.rank(), environment.nRanks(), options.build())) {
      bootstrap.initialize(environment).join();
      try (GpuRank rank =
          GpuRank.create(bootstrap, environment.rank() % gpus, environment.nRanks() > gpus)) {
        for (int i = 1; i < args.length; i++) {
          running = args[i];
          Scenario.valueOf(running).run(rank);
          rank.closeOwned();
          rank.barrier();
          say(running, "ok");
        }
      }
    } catch (Throwable e) {
      StringWriter trace = new StringWriter();
      e.printStackTrace(new PrintWriter(trace));
      say(running, trace.toString().replace("\n", "\\n"));
    }
    // A kernel that hangs must not keep the process.
    Runtime.getRuntime().halt(0);
  }

  private static void say(String scenario, String outcome) {
    System.out.println("scenario " + scenario + " " + outcome);
    System.out.flush();
  }
}
