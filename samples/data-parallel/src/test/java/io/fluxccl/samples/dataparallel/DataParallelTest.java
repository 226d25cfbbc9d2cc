// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.dataparallel;

import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.WRITE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Four ranks reach the loss of one process with four times the batch, also if one is killed. */
@Timeout(300)
class DataParallelTest {
  private static final int RANKS = 4;
  private static final int STEPS = 200;
  private static final int TIMED_STEPS = 60;
  private static final double TOLERANCE = 1e-4;

  @TempDir private Path folder;
  private int jobs;

  /** Starts ranks that together use {@code batch} examples in each step. */
  private ProcessRanks start(Class<?> main, int nRanks, int batch, int steps) {
    return start(main, nRanks, batch, steps, folder.resolve("job" + jobs++).toString());
  }

  private static ProcessRanks start(
      Class<?> main, int nRanks, int batch, int steps, String... more) {
    return ranks(main, nRanks, batch, steps, more).start();
  }

  private static ProcessRanks.Builder ranks(
      Class<?> main, int nRanks, int batch, int steps, String... more) {
    return ProcessRanks.builder(nRanks, main)
        .jvmOptions("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
        .limit(Duration.ofSeconds(120))
        .arguments(Integer.toString(steps * batch), Integer.toString(batch / nRanks))
        .arguments(more);
  }

  private static double number(ProcessRank rank, String beginning) {
    String line = rank.awaitLine(beginning);
    return Double.parseDouble(line.substring(beginning.length()).split(" ")[0]);
  }

  private static void assertAllLearn(double expected, ProcessRanks ranks) {
    for (ProcessRank rank : ranks.all()) {
      double loss = number(rank, "final loss ");
      System.out.printf(
          "final loss of rank %d: %s, one process: %s%n", rank.rank(), loss, expected);
      assertEquals(expected, loss, TOLERANCE * expected, rank.output());
      assertEquals(0, rank.end());
    }
  }

  private double lossOfOneProcess(Class<?> main, int batch, int steps) {
    try (ProcessRanks one = start(main, 1, batch, steps)) {
      return number(one.get(0), "final loss ");
    }
  }

  /** Kills a rank in the middle of the training, and starts another one in its place. */
  private static void killAndReplace(ProcessRanks ranks, int victim, int batch) {
    String line = ranks.get(0).awaitLine("example ");
    long written = Long.parseLong(line.substring("example ".length(), line.indexOf(':')));
    ranks.replace(victim);
    ProcessRank survivor = ranks.get(victim == 1 ? 2 : 1);
    survivor.await(rank -> rank.count("resumed at example ") == 2, "the second generation");
    long resumed = Long.parseLong(survivor.last("resumed at example ").split(" ")[3]);
    assertTrue(resumed >= written, "resumed at " + resumed + ", written at " + written);
    assertTrue(resumed < (long) STEPS * batch, "the rank was killed too late");
    assertEquals(resumed, (long) number(ranks.get(victim), "resumed at example "));
  }

  @Test
  void shouldReachTheLossOfOneProcessInPlainJavaIfARankIsKilled() {
    int batch = 2048;
    double expected = lossOfOneProcess(PlainTraining.class, batch, STEPS);
    try (ProcessRanks ranks = start(PlainTraining.class, RANKS, batch, STEPS)) {
      killAndReplace(ranks, 3, batch);
      assertAllLearn(expected, ranks);
    }
  }

  @Test
  void shouldReachTheLossOfOneProcessWithPyTorchIfARankIsKilled() {
    int batch = 32;
    double expected = lossOfOneProcess(GptTraining.class, batch, STEPS);
    try (ProcessRanks ranks = start(GptTraining.class, RANKS, batch, STEPS)) {
      killAndReplace(ranks, 2, batch);
      assertAllLearn(expected, ranks);
    }
  }

  @Test
  void shouldContinueFromTheCheckpointIfAllRanksAreStartedAgain() {
    int batch = 256;
    double expected = lossOfOneProcess(PlainTraining.class, batch, STEPS);
    String checkpoints = folder.resolve("checkpoints").toString();
    for (int steps = STEPS / 2; steps <= STEPS; steps += STEPS / 2) {
      try (ProcessRanks ranks = start(PlainTraining.class, 2, batch, steps, checkpoints)) {
        long resumed = (long) number(ranks.get(1), "resumed at example ");
        assertEquals((steps - STEPS / 2) * batch, resumed);
        number(ranks.get(0), "final loss ");
        assertEquals(0, ranks.get(0).end());
        if (steps == STEPS) {
          assertAllLearn(expected, ranks);
        }
      }
    }
  }

  /** Ranks that load a library while another one unpacks it would crash. */
  @Test
  void shouldStartAllRanksOnAMachineWherePyTorchIsNotUnpacked() {
    String unpacked = "-Dorg.bytedeco.javacpp.cachedir=" + folder.resolve("javacpp");
    String checkpoints = folder.resolve("checkpoints").toString();
    try (ProcessRanks ranks =
        ranks(GptTraining.class, RANKS, 32, 2, checkpoints).jvmOptions(unpacked).start()) {
      for (ProcessRank rank : ranks.all()) {
        number(rank, "final loss ");
        assertEquals(0, rank.end(), rank.output());
      }
    }
  }

  /** This process holds the lock, like a rank that was stopped while it loads PyTorch. */
  @Test
  void shouldNameTheLockIfAnotherProcessKeepsIt() throws IOException {
    Path cache = Files.createDirectories(folder.resolve("javacpp"));
    Path lock = cache.resolve("data-parallel.lock");
    try (FileChannel channel = FileChannel.open(lock, CREATE, WRITE);
        FileLock held = channel.lock();
        ProcessRanks ranks =
            ranks(GptTraining.class, 1, 32, 2, folder.toString())
                .jvmOptions("-Dorg.bytedeco.javacpp.cachedir=" + cache)
                .variables(Map.of("FLUXCCL_JOIN_TIMEOUT", "0.5"))
                .start()) {
      assertEquals(1, ranks.get(0).end(), ranks.get(0).output());
      String output = ranks.get(0).output();
      assertTrue(output.contains("Timeout: another process has held the lock " + lock), output);
    }
  }

  @Test
  void shouldBeShortInPlainJava() throws IOException {
    Path sample = Path.of(System.getProperty("basedir", "samples/data-parallel"));
    String file = PlainTraining.class.getName().replace('.', '/') + ".java";
    assertTrue(Files.readAllLines(sample.resolve("src/main/java").resolve(file)).size() < 120);
  }

  /** The last step of the epoch has one example, so two ranks have none. */
  @ParameterizedTest
  @ValueSource(classes = {PlainTraining.class, GptTraining.class})
  void shouldReachTheLossOfOneProcessIfTheExamplesDoNotDivide(Class<?> main) {
    int batch = 45;
    int steps = 100;
    double expected = lossOfOneProcess(main, batch, steps);
    try (ProcessRanks ranks = start(main, 3, batch, steps)) {
      assertAllLearn(expected, ranks);
    }
  }

  /** An error of rank 0 that does not concern the group reaches the ranks that wait for it. */
  private static void assertErrorOfRank0(ProcessRanks ranks, String... parts) {
    for (ProcessRank rank : ranks.all().subList(1, RANKS)) {
      String line = rank.awaitLine("this generation ended: ");
      for (String part : parts) {
        assertTrue(line.contains(part), rank.output());
      }
      assertTrue(rank.isAlive(), "rank " + rank.rank() + " waits for a replacement");
    }
    assertEquals(1, ranks.get(0).end(), ranks.get(0).output());
  }

  @ParameterizedTest
  @ValueSource(classes = {PlainTraining.class, GptTraining.class})
  void shouldEndTheGenerationIfACheckpointCanNotBeWritten(Class<?> main) throws IOException {
    Path checkpoints = folder.resolve("spoilt");
    // A write deletes unfinished files, but no folder that is not empty.
    Files.createDirectories(checkpoints.resolve("step-1.checkpoint.unfinished/used"));
    try (ProcessRanks ranks = start(main, RANKS, 32, STEPS, checkpoints.toString())) {
      assertErrorOfRank0(ranks, "rank 0", "checkpoint write", "spoilt");
    }
  }

  @Test
  void shouldEndTheGenerationIfAnErrorIsNotOfFluxCcl() {
    String picture = folder.resolve("none/step.svg").toString();
    String checkpoints = folder.resolve("checkpoints").toString();
    try (ProcessRanks ranks = start(GptTraining.class, RANKS, 32, STEPS, checkpoints, picture)) {
      assertErrorOfRank0(ranks, "rank 0 failed", "NoSuchFileException", "none/step.svg");
    }
  }

  @Test
  void shouldPrintTheTimeOfAStepAndThatOfProcessesThatDoNotCommunicate() {
    int batch = 64;
    List<ProcessRanks> alone = new ArrayList<>();
    double separate = 0;
    try {
      for (int i = 0; i < RANKS; i++) {
        alone.add(start(GptTraining.class, 1, batch / RANKS, TIMED_STEPS));
      }
      for (ProcessRanks each : alone) {
        separate += number(each.get(0), "step ms: mean ") / RANKS;
      }
    } finally {
      alone.forEach(ProcessRanks::close);
    }
    try (ProcessRanks together = start(GptTraining.class, RANKS, batch, TIMED_STEPS)) {
      double joint = number(together.get(0), "step ms: mean ");
      System.out.printf(
          "a step of four ranks: %.1f ms, of four processes that do not communicate: %.1f ms,"
              + " ratio %.2f%n",
          joint, separate, joint / separate);
      assertTrue(joint > 0 && separate > 0);
    }
  }
}
