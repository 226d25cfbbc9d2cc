// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.samples.spark.LogisticRegression.BeforeStep;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.util.TaskFailureListener;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Tests a barrier stage of four tasks, wherever Spark runs them. */
@Timeout(150)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class BarrierStageContract {
  private static final int TASKS = 4;
  private static final int ROWS = 200;
  private static final LogisticRegression MODEL = new LogisticRegression(6, 20, 1);

  private JavaSparkContext spark;

  /** The folder to which tasks of all processes write. */
  private String folder;

  abstract String master();

  /** Does this before the sixth step of one task, with the number of the stage's attempt. */
  @FunctionalInterface
  interface Mishap extends java.io.Serializable {
    void happen(int attempt);
  }

  @BeforeAll
  void connect() {
    SparkConf conf = LogisticRegression.conf(master()).set("spark.executor.memory", "512m");
    spark = new JavaSparkContext(conf);
  }

  @AfterAll
  void disconnect() throws IOException {
    spark.close();
  }

  @BeforeEach
  void begin(@TempDir Path fresh) {
    folder = fresh + "/";
  }

  private static void write(String file, String text) {
    try {
      Files.writeString(Path.of(file), text);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Trains, while tasks write which process and attempt they are of, and how they fail. */
  final List<double[]> train(int unlucky, Mishap mishap) {
    String to = folder;
    BeforeStep before =
        (task, step) -> {
          if (step == 0) {
            // A kill during a second write would leave an empty file. So each task writes these
            // files once, before the first all-reduce, for which the mishap of any task waits.
            String self = " " + task.stageAttemptNumber() + " rank " + task.partitionId();
            String process = Long.toString(ProcessHandle.current().pid());
            write(to + "process " + process, "");
            write(to + "attempt" + self, process);
            task.addTaskFailureListener(
                (TaskFailureListener)
                    (context, failure) -> write(to + "failure" + self, failure.toString()));
          }
          if (step == 5 && task.partitionId() == unlucky) {
            int attempt = task.stageAttemptNumber();
            mishap.happen(attempt - firstAttempt(to, attempt));
          }
        };
    return MODEL.train(LogisticRegression.dataSet(spark, TASKS, ROWS, MODEL.features()), before);
  }

  /**
   * Returns the first attempt in which the unlucky task reaches its mishap. On a busy machine Spark
   * may end an earlier one, whose tasks it can't start.
   */
  private static int firstAttempt(String folder, int attempt) {
    Path file = Path.of(folder + "first");
    try {
      Files.writeString(file, Integer.toString(attempt), StandardOpenOption.CREATE_NEW);
      return attempt;
    } catch (FileAlreadyExistsException e) {
      return firstAttempt(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static int firstAttempt(Path file) {
    try {
      return Integer.parseInt(Files.readString(file));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the number of an attempt, counted from the one of the mishap. */
  final int attempt(int afterMishap) {
    return firstAttempt(Path.of(folder + "first")) + afterMishap;
  }

  /** A busy machine may need more attempts after the mishap than one. */
  final void assertLaterAttemptTrained() throws IOException {
    assertThat(lastAttempt()).isGreaterThan(attempt(0));
    assertTrained(lastAttempt());
  }

  private void assertTrained(int attempt) throws IOException {
    assertThat(written("attempt " + attempt + " ")).isEqualTo(TASKS);
    assertThat(written("failure " + attempt + " ")).isZero();
  }

  /** Returns the last attempt whose tasks have trained. */
  private int lastAttempt() throws IOException {
    try (Stream<Path> files = Files.list(Path.of(folder))) {
      return files
          .map(file -> file.getFileName().toString().split(" "))
          .filter(words -> words[0].equals("attempt"))
          .mapToInt(words -> Integer.parseInt(words[1]))
          .max()
          .orElseThrow();
    }
  }

  final long written(String what) throws IOException {
    try (Stream<Path> files = Files.list(Path.of(folder))) {
      return files.filter(file -> file.getFileName().toString().startsWith(what)).count();
    }
  }

  /** Asserts that every rank has the weights of a single process, to the last bit. */
  static void assertRight(List<double[]> weights) {
    List<List<double[]>> partitions = new ArrayList<>();
    for (int partition = 0; partition < TASKS; partition++) {
      partitions.add(LogisticRegression.rows(partition, ROWS, MODEL.features()));
    }
    double[] alone = MODEL.trainAlone(partitions);
    assertThat(weights).hasSize(TASKS).allSatisfy(each -> assertThat(each).containsExactly(alone));
  }

  /** Returns the processes that have run tasks. */
  final List<String> processes() throws IOException {
    try (Stream<Path> files = Files.list(Path.of(folder))) {
      return files
          .map(file -> file.getFileName().toString())
          .filter(name -> name.startsWith("process "))
          .map(name -> name.substring("process ".length()))
          .toList();
    }
  }

  /** Returns the process of a task of the attempt with the mishap. */
  final String process(int rank) throws IOException {
    return Files.readString(Path.of(folder + "attempt " + attempt(0) + " rank " + rank));
  }

  /** Returns the failure of a task of the attempt with the mishap. */
  final String failure(int rank) throws IOException {
    return Files.readString(Path.of(folder + "failure " + attempt(0) + " rank " + rank));
  }

  @Test
  void shouldTrainAsASingleProcessDoes() throws IOException {
    assertRight(train(-1, attempt -> {}));
    assertThat(written("process")).isEqualTo(master().startsWith("local[") ? 1 : 2);
    assertTrained(lastAttempt());
  }

  @Test
  void shouldTrainInARetryOfTheStageWhenATaskFails() throws IOException {
    List<double[]> weights =
        train(
            2,
            attempt -> {
              if (attempt == 0) {
                throw new IllegalStateException("on purpose");
              }
            });
    assertRight(weights);
    assertLaterAttemptTrained();
    assertThat(failure(2)).contains("on purpose");
    // The others did not wait for it: they know whose task has failed.
    for (int rank : new int[] {0, 1, 3}) {
      assertThat(failure(rank)).startsWith(Aborted.class.getName()).contains("rank 2");
    }
  }
}
