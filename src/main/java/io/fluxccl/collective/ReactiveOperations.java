// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import java.util.function.IntFunction;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * Operations that are cold Monos, also on Java arrays and numbers:
 *
 * <pre>{@code
 * Mono<Double> loss = collectives.allReduce(lossOfThisRank, ReduceOp.AVG);
 * Mono<float[]> sums = collectives.allReduce(new float[] {1, 2}, ReduceOp.SUM);
 * }</pre>
 *
 * <p>The thread that subscribes to the Mono of an array copies it to the device before it returns,
 * because the operation takes its place in the order then. The array stays as it is; the result is
 * a new one. If the operation completes on a thread of the library that must not block, a result of
 * more than 16 KiB, or of a GPU, is copied and signalled on another thread, which may.
 *
 * <p>Arrays have the same length on every rank, or the operation fails with {@link InvalidUsage} as
 * any other whose counts differ. They pass through memory of the device that is allocated for the
 * call. Use views for data that is there already.
 */
@Experimental
public interface ReactiveOperations extends CollectiveOperations<Mono<Void>> {
  /** Returns the device of this rank. */
  Device device();

  /**
   * Returns the scheduler on which results are signalled; {@link Schedulers#immediate}: on the
   * thread that ends the operation.
   */
  default Scheduler scheduler() {
    return Schedulers.immediate();
  }

  /** Returns the combination of all ranks' arrays. */
  default Mono<float[]> allReduce(float[] values, ReduceOp op) {
    return allReduce(
        DataType.FLOAT32,
        values,
        float[]::new,
        op,
        (bytes, from) -> bytes.asFloatBuffer().put(from),
        (bytes, to) -> bytes.asFloatBuffer().get(to));
  }

  /** Returns the combination of all ranks' arrays. */
  default Mono<double[]> allReduce(double[] values, ReduceOp op) {
    return allReduce(
        DataType.FLOAT64,
        values,
        double[]::new,
        op,
        (bytes, from) -> bytes.asDoubleBuffer().put(from),
        (bytes, to) -> bytes.asDoubleBuffer().get(to));
  }

  /** Returns the combination of all ranks' arrays. */
  default Mono<long[]> allReduce(long[] values, ReduceOp op) {
    return allReduce(
        DataType.INT64,
        values,
        long[]::new,
        op,
        (bytes, from) -> bytes.asLongBuffer().put(from),
        (bytes, to) -> bytes.asLongBuffer().get(to));
  }

  /** Returns the combination of all ranks' arrays. */
  default Mono<int[]> allReduce(int[] values, ReduceOp op) {
    return allReduce(
        DataType.INT32,
        values,
        int[]::new,
        op,
        (bytes, from) -> bytes.asIntBuffer().put(from),
        (bytes, to) -> bytes.asIntBuffer().get(to));
  }

  /** Returns the combination of all ranks' numbers. */
  default Mono<Double> allReduce(double value, ReduceOp op) {
    return allReduce(new double[] {value}, op).map(result -> result[0]);
  }

  /** Returns the combination of all ranks' integers. */
  default Mono<Long> allReduce(long value, ReduceOp op) {
    return allReduce(new long[] {value}, op).map(result -> result[0]);
  }

  /** Combines arrays of the host through memory of the device. */
  private <T> Mono<T> allReduce(
      DataType type,
      T values,
      IntFunction<T> make,
      ReduceOp op,
      BiConsumer<ByteBuffer, T> write,
      BiConsumer<ByteBuffer, T> read) {
    InvalidUsage.requireNonNull(values, Collective.ALL_REDUCE.label(), "values");
    InvalidUsage.requireNonNull(op, Collective.ALL_REDUCE.label(), "op");
    int count = Array.getLength(values);
    if (type.bytes(count) > Integer.MAX_VALUE) {
      throw InvalidUsage.of("all-reduce of %d elements: too long an array; use views", count);
    }
    int size = (int) type.bytes(count);
    return Mono.deferContextual(
        context -> {
          ByteBuffer bytes = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
          write.accept(bytes, values);
          DeviceBuffer memory = device().allocate(Math.max(1, size));
          CompletableFuture<T> result;
          try {
            memory.upload(0, bytes.clear());
            Callable<T> download =
                () -> {
                  memory.download(0, bytes.clear());
                  T sums = make.apply(count);
                  read.accept(bytes.clear(), sums);
                  return sums;
                };
            result =
                allReduce(memory, memory, count, type, op)
                    .then(
                        Mono.defer(
                            () ->
                                onThreadFor(
                                    size, Mono.fromCallable(BlockingTasks.typed(download)))))
                    .doFinally(end -> memory.close())
                    .contextWrite(context)
                    .toFuture();
          } catch (RuntimeException | Error e) {
            memory.close();
            throw e;
          }
          // Not cancelled with the subscriber: the operation uses the memory until its end.
          Mono<T> signal = Mono.fromFuture(result, true);
          return scheduler() == Schedulers.immediate() ? signal : signal.publishOn(scheduler());
        });
  }

  /** Runs a download on this thread, or on one that may block if this one must not do so. */
  private <T> Mono<T> onThreadFor(int size, Mono<T> download) {
    boolean isShort = size <= 16384 && device().kind() == DeviceKind.HOST;
    return isShort || !Schedulers.isInNonBlockingThread()
        ? download
        : download.subscribeOn(Schedulers.fromExecutor(BlockingTasks.EXECUTOR));
  }
}
