// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.RemoteFailure;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.spi.ToolProvider;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A master and two workers that are processes of their own, as of a standalone cluster. */
@Timeout(600)
class StandaloneTest extends BarrierStageContract {
  private static final int UNLUCKY = 3;

  private final StandaloneCluster cluster = new StandaloneCluster();
  private final Set<ProcessHandle> executors = new HashSet<>();

  @Override
  String master() {
    return cluster.url();
  }

  @AfterEach
  void keepExecutors() throws IOException {
    for (String executor : processes()) {
      ProcessHandle.of(Long.parseLong(executor)).ifPresent(executors::add);
    }
  }

  /** Asserts that no process is left. */
  @Override
  @AfterAll
  void disconnect() throws IOException {
    super.disconnect();
    cluster.close();
    for (ProcessHandle executor : executors) {
      executor.onExit().orTimeout(120, TimeUnit.SECONDS).join();
    }
    cluster.delete();
  }

  @Test
  void shouldTrainInARetryOfTheStageWhenAnExecutorIsKilled() throws IOException {
    int workers = cluster.workers();
    assertRetried(
        train(
            UNLUCKY,
            attempt -> {
              if (attempt == 0) {
                StandaloneCluster.kill(ProcessHandle.current().pid());
              }
            }));
    assertThat(cluster.workers()).isEqualTo(workers);
  }

  @Test
  void shouldTrainInARetryOfTheStageWhenAWorkerIsKilled() throws IOException {
    int workers = cluster.workers();
    assertRetried(
        train(
            UNLUCKY,
            attempt -> {
              if (attempt == 0) {
                StandaloneCluster.kill(ProcessHandle.current().parent().orElseThrow().pid());
              }
            }));
    assertThat(cluster.workers()).isEqualTo(workers + 1);
  }

  private void assertRetried(List<double[]> weights) throws IOException {
    assertRight(weights);
    // With the executor that took the place of the dead one.
    assertThat(written("process")).isEqualTo(3);
    assertLaterAttemptTrained();
    String killed = process(UNLUCKY);
    int survivors = 0;
    for (int rank = 0; rank < UNLUCKY; rank++) {
      if (!process(rank).equals(killed)) {
        survivors++;
        assertThat(failure(rank)).startsWith(RemoteFailure.class.getName());
      }
    }
    assertThat(survivors).isEqualTo(2);
  }

  @Test
  void shouldTrainWhenSubmitted(@TempDir Path fresh) throws Exception {
    Path classes = Path.of("target/classes").toAbsolutePath();
    String jar = fresh.resolve("app.jar").toString();
    PrintWriter out = new PrintWriter(System.out, true);
    ToolProvider tool = ToolProvider.findFirst("jar").orElseThrow();
    assertThat(tool.run(out, out, "cf", jar, "-C", classes.toString(), ".")).isZero();
    Path printed = fresh.resolve("printed");
    super.disconnect(); // its slots are needed
    Process submit =
        new ProcessBuilder(
                StandaloneCluster.java(
                    "SparkSubmit",
                    "--master",
                    cluster.url(),
                    "--executor-memory",
                    "512m",
                    "--class",
                    LogisticRegression.class.getName(),
                    jar,
                    cluster.url()))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .redirectOutput(printed.toFile())
            .start();
    try {
      assertThat(submit.waitFor(400, TimeUnit.SECONDS)).isTrue();
    } finally {
      submit.destroyForcibly().waitFor();
      connect();
    }
    assertThat(submit.exitValue()).isZero();
    assertThat(Files.readString(printed)).contains("weights [");
  }
}
