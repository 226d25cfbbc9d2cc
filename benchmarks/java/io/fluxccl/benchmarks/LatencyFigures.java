// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.cli.Main;
import java.util.ArrayList;
import java.util.List;

/** Time that the host adds to a collective, from subscribing to completion, and to a replay. */
final class LatencyFigures implements FigureSection {
  @Override
  public String name() {
    return "latency";
  }

  @Override
  public String description() {
    return "subscribe to onComplete of a 1 KiB all-reduce, replays of 20; two processes";
  }

  @Override
  public int gpus() {
    return 2;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    List<String> command = new ArrayList<>(PerfProcess.java(Main.class.getName()));
    command.addAll(List.of("launch", "-n", "2", "--"));
    command.addAll(PerfProcess.java(LatencyRank.class.getName()));
    int code = new ProcessBuilder(command).inheritIO().start().waitFor();
    if (code != 0) {
      throw new IllegalStateException("the ranks ended with exit code " + code);
    }
  }
}
