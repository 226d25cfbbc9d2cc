// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Two ranks in two processes that run all scenarios one after the other. Restarted after a failed
 * scenario.
 */
@Tag("multiprocess")
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ScenarioProcesses {
  private static final int RANKS = 2;

  private final int gpus;
  private ProcessRanks processes;

  ScenarioProcesses(int gpus) {
    this.gpus = gpus;
  }

  /** Called for each scenario in order. */
  @ParameterizedTest
  @EnumSource(Scenario.class)
  void shouldHoldBetweenProcesses(Scenario scenario) {
    if (processes == null) {
      processes = startFrom(scenario);
    }
    String start = "scenario " + scenario + " ";
    try {
      for (ProcessRank process : processes.all()) {
        assertThat(process.awaitLine(start)).as(process.output()).isEqualTo(start + "ok");
      }
    } catch (Throwable e) {
      processes.all().forEach(each -> e.addSuppressed(new AssertionError(each.output())));
      close();
      throw e;
    }
  }

  private ProcessRanks startFrom(Scenario first) {
    Stream<String> scenarios =
        Arrays.stream(Scenario.values()).skip(first.ordinal()).map(Scenario::name);
    return TestJvms.of(RANKS, Main.class)
        .arguments(Stream.concat(Stream.of("" + gpus), scenarios).toArray(String[]::new))
        .jvmOptions("-Xmx512m", "-Dfluxccl.test.memory=" + GpuRank.MEMORY)
        .start();
  }

  @AfterAll
  void close() {
    if (processes != null) {
      processes.close();
      processes = null;
    }
  }

  /**
   * One rank in its own process: runs scenarios one after the other until one fails, and prints the
   * result of each.
   */
  static final class Main {
    /** Arguments: the number of GPUs, then the scenarios. */
    public static void main(String[] args) throws Exception {
      RankEnvironment environment = RankEnvironment.fromEnvironment();
      int number = environment.rank();
      int gpus = Integer.parseInt(args[0]);
      BootstrapOptions.Builder options = BootstrapOptions.builder().timeout(GpuRank.PATIENCE);
      environment.secret().ifPresent(options::secret);
      String running = "(none)";
      try (TcpBootstrap bootstrap = TcpBootstrap.create(number, RANKS, options.build())) {
        bootstrap.initialize(environment).join();
        try (CudaDevice device = GpuRank.open(number % gpus);
            DeviceStream stream = device.createStream("test");
            Communicator communicator = Communicator.create(bootstrap, device);
            GpuRank rank = new GpuRank(bootstrap, communicator, stream, RANKS > gpus)) {
          for (int i = 1; i < args.length; i++) {
            running = args[i];
            Scenario.valueOf(running).run(rank);
            rank.close();
            rank.barrier();
            System.out.println("scenario " + running + " ok");
          }
        }
      } catch (Throwable e) {
        System.out.println("scenario " + running + " " + e);
        e.printStackTrace(System.out);
        System.out.flush();
      }
      // A kernel that hangs must not keep the process.
      Runtime.getRuntime().halt(0);
    }
  }
}
