// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Outcome;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/**
 * Measures the time that the flight recorder adds to a call: its begin and its end, including two
 * clock reads. Run with {@code -prof gc}: operations must not allocate.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@State(Scope.Thread)
public class RecorderBenchmark {
  private final FlightRecorder recorder =
      new FlightRecorder(0, () -> -1, FlightRecorder.DEFAULT_CALLS, false);
  private long number;

  /** One call. */
  @Benchmark
  public void beginAndEnd() {
    number++;
    recorder.ended(recorder.enqueued(1, 2, 3, 4, 16384, number, number), Outcome.DONE, 0, 0);
  }

  /** The two clock reads alone. */
  @Benchmark
  public long clock() {
    return System.nanoTime() - System.nanoTime();
  }
}
