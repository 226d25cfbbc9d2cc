// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.function.UnaryOperator;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction1;

/**
 * A logistic regression whose data is in the partitions of an RDD. The tasks of one barrier stage
 * keep their rows, and all-reduce a gradient in each step. A row is its label, 0 or 1, and then its
 * features.
 *
 * @param features of a row
 * @param steps of gradient descent
 * @param rate how far a step goes
 */
public record LogisticRegression(int features, int steps, double rate) implements Serializable {
  private static final ClassTag<double[]> ROW = ClassTag.apply(double[].class);

  /** Runs on the executors before a step; for tests. */
  @FunctionalInterface
  public interface BeforeStep extends Serializable {
    void run(BarrierTaskContext task, int step);
  }

  /**
   * Trains on all partitions at once: the cluster must have a slot for each of them.
   *
   * @return the weights, of each rank
   */
  public List<double[]> train(JavaRDD<double[]> rows, BeforeStep before) {
    var barrier = rows.rdd().barrier().mapPartitions(new Task(this, before), false, ROW);
    // Spark retries a barrier stage only if a shuffle follows it; else a failed task fails the job.
    return JavaRDD.fromRDD(barrier, ROW).repartition(1).collect();
  }

  /** Trains in this process, on the rows of each partition, and adds in the partitions' order. */
  public double[] trainAlone(List<List<double[]>> partitions) {
    double[] weights = new double[features];
    for (int step = 0; step < steps; step++) {
      double[] sum = null;
      for (List<double[]> rows : partitions) {
        double[] part = gradient(rows, weights);
        if (sum != null) {
          for (int i = 0; i < part.length; i++) {
            part[i] = sum[i] + part[i];
          }
        }
        sum = part;
      }
      descend(weights, sum);
    }
    return weights;
  }

  /** Does a task of the barrier stage: takes its rows, gives the weights. */
  private static final class Task
      extends AbstractFunction1<
          scala.collection.Iterator<double[]>, scala.collection.Iterator<double[]>>
      implements Serializable {
    private static final long serialVersionUID = 1;
    private final LogisticRegression model;
    private final BeforeStep before;

    Task(LogisticRegression model, BeforeStep before) {
      this.model = model;
      this.before = before;
    }

    @Override
    public scala.collection.Iterator<double[]> apply(scala.collection.Iterator<double[]> rows) {
      List<double[]> mine = new ArrayList<>();
      CollectionConverters.asJava(rows).forEachRemaining(mine::add);
      BarrierTaskContext task = BarrierTaskContext.get();
      double[] weights = BarrierGroup.run(task, group -> model.train(group, mine, task, before));
      return CollectionConverters.asScala(List.of(weights).iterator());
    }
  }

  private double[] train(
      RankGroup group, List<double[]> rows, BarrierTaskContext task, BeforeStep before) {
    double[] weights = new double[features];
    try (DeviceBuffer buffer = group.device().allocate((features + 1L) * Double.BYTES)) {
      UnaryOperator<double[]> allReduce = allReduce(group, buffer);
      for (int step = 0; step < steps; step++) {
        before.run(task, step);
        descend(weights, allReduce.apply(gradient(rows, weights)));
      }
    }
    return weights;
  }

  private static UnaryOperator<double[]> allReduce(RankGroup group, DeviceBuffer buffer) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect((int) buffer.size()).order(ByteOrder.nativeOrder());
    return values -> {
      bytes.clear().asDoubleBuffer().put(values);
      buffer.upload(0, bytes);
      group.collectives().allReduce(buffer, DataType.FLOAT64, ReduceOp.SUM).block();
      buffer.download(0, bytes.clear());
      bytes.flip().asDoubleBuffer().get(values);
      return values;
    };
  }

  /** Returns the sum over rows of the gradient, followed by the number of rows. */
  private double[] gradient(List<double[]> rows, double[] weights) {
    double[] gradient = new double[features + 1];
    for (double[] row : rows) {
      double error = probability(row, weights) - row[0];
      for (int i = 0; i < features; i++) {
        gradient[i] += error * row[1 + i];
      }
    }
    gradient[features] = rows.size();
    return gradient;
  }

  private void descend(double[] weights, double[] gradient) {
    for (int i = 0; i < features; i++) {
      weights[i] -= rate * gradient[i] / gradient[features];
    }
  }

  private static double probability(double[] row, double[] weights) {
    double sum = 0;
    for (int i = 0; i < weights.length; i++) {
      sum += weights[i] * row[1 + i];
    }
    return 1 / (1 + Math.exp(-sum));
  }

  /** Returns random rows, whose labels follow from hidden weights: the same for each partition. */
  public static List<double[]> rows(int partition, int count, int features) {
    double[] hidden = new Random(1).doubles(features, -1, 1).toArray();
    Random random = new Random(partition + 2L);
    List<double[]> rows = new ArrayList<>();
    for (int n = 0; n < count; n++) {
      double[] row = new double[1 + features];
      for (int i = 1; i <= features; i++) {
        row[i] = random.nextGaussian();
      }
      row[0] = random.nextDouble() < probability(row, hidden) ? 1 : 0;
      rows.add(row);
    }
    return rows;
  }

  /** Returns an RDD whose partitions are made of {@link #rows}, where they are needed. */
  public static JavaRDD<double[]> dataSet(
      JavaSparkContext spark, int partitions, int count, int features) {
    List<Integer> numbers = new ArrayList<>();
    for (int partition = 0; partition < partitions; partition++) {
      numbers.add(partition);
    }
    return spark
        .parallelize(numbers, partitions)
        .flatMap(number -> rows(number, count, features).iterator());
  }

  /** Returns a configuration in which a barrier stage does not wait long for its slots. */
  static SparkConf conf(String master) {
    return new SparkConf()
        .setAppName("logistic-regression")
        .setMaster(master)
        .set("spark.ui.enabled", "false")
        // Spark would look every 15 s whether there are slots for all tasks, and give up after 40
        // looks.
        .set("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
        .set("spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures", "600")
        .set("spark.scheduler.minRegisteredResourcesRatio", "1");
  }

  /**
   * Trains, and prints the weights.
   *
   * @param args the master's address
   */
  public static void main(String[] args) {
    try (JavaSparkContext spark = new JavaSparkContext(conf(args[0]))) {
      LogisticRegression model = new LogisticRegression(8, 50, 1);
      List<double[]> weights = model.train(dataSet(spark, 4, 1000, 8), (task, step) -> {});
      System.out.println("weights " + Arrays.toString(weights.get(0)));
    }
  }
}
