// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.IntFunction;

/**
 * One {@link Pipeline} captured for several sizes, for work of varying size: a batch of 5 runs the
 * recording for 8, with its last 3 places unused.
 *
 * <pre>{@code
 * try (CapturedSizes steps =
 *     CapturedSizes.of(new int[] {1, 8, 64}, size ->
 *         collectives.pipeline()
 *             .launch(layer, size, 128, KernelArgs.of(x, size))
 *             .allReduce(x.slice(0, size * width), ReduceOp.SUM))) {
 *   steps.atLeast(5).run().block(); // runs that of size 8
 * }
 * }</pre>
 *
 * <p>A size is captured at its first use, which takes milliseconds, or by {@link #captureAll()}.
 * Capturing exchanges no messages: ranks may capture sizes at different times and in different
 * orders, but between the same registrations and preferences ({@link Pipeline#capture}). The
 * <em>runs</em> are collectives: every rank must run the same size, so a rank with fewer elements
 * than another must ask for the same n.
 *
 * <p>Thread-safe. A size that is captured is found without a lock.
 */
public final class CapturedSizes implements AutoCloseable {
  private final int[] sizes;
  private final IntFunction<Pipeline> maker;
  private final AtomicReferenceArray<CapturedPipeline> captured;
  private final Lifecycle lifecycle;

  private CapturedSizes(int[] sizes, IntFunction<Pipeline> maker) {
    this.sizes = sizes;
    this.maker = maker;
    this.captured = new AtomicReferenceArray<>(sizes.length);
    this.lifecycle = new Lifecycle("captured sizes " + Arrays.toString(sizes));
  }

  /**
   * Returns the given sizes, none of them captured yet.
   *
   * @param sizes one or more, each 1 or more, in any order
   * @param maker makes the pipeline of a size, once for each, on the thread that requests it first.
   *     That thread gets its exceptions, and the next caller tries again
   * @return the sizes; the caller closes them
   * @throws InvalidUsage if there is no size, or one below 1
   */
  public static CapturedSizes of(int[] sizes, IntFunction<Pipeline> maker) {
    InvalidUsage.requireNonNull(sizes, "captured sizes", "sizes");
    InvalidUsage.requireNonNull(maker, "captured sizes", "maker");
    int[] ascending = Arrays.stream(sizes).sorted().distinct().toArray();
    if (ascending.length == 0 || ascending[0] < 1) {
      throw InvalidUsage.of(
          "captured sizes %s; give one or more, each 1 or more", Arrays.toString(sizes));
    }
    return new CapturedSizes(ascending, maker);
  }

  /**
   * Returns the smallest size that is at least n: what {@link #atLeast} runs.
   *
   * @param n 0 or more
   * @throws InvalidUsage that lists the sizes, if none is so large
   */
  public int sizeFor(int n) {
    return sizes[indexFor(n)];
  }

  /**
   * Returns the captured pipeline of the smallest size that is at least n, and captures it if it is
   * not yet. Don't close it; it is closed with this.
   *
   * @param n 0 or more; the same size on every rank that runs it
   * @return the pipeline of {@link #sizeFor}
   * @throws InvalidUsage that lists the sizes, if none is so large; if this is closed; or as {@link
   *     Pipeline#capture}
   */
  public CapturedPipeline atLeast(int n) {
    int index = indexFor(n);
    lifecycle.checkOpen();
    CapturedPipeline found = captured.get(index);
    return found == null ? capture(index) : found;
  }

  /**
   * Captures all sizes that are not captured yet, so that no later run waits for it.
   *
   * @return this
   * @throws InvalidUsage as {@link #atLeast}; sizes captured before the failure stay
   */
  public CapturedSizes captureAll() {
    for (int size : sizes) {
      atLeast(size);
    }
    return this;
  }

  private int indexFor(int n) {
    int found = Arrays.binarySearch(sizes, n);
    int index = found < 0 ? -found - 1 : found;
    if (n < 0 || index == sizes.length) {
      throw InvalidUsage.of(
          "n=%d; give 0 to %d, the largest of the captured sizes %s",
          n, sizes[sizes.length - 1], Arrays.toString(sizes));
    }
    return index;
  }

  private synchronized CapturedPipeline capture(int index) {
    CapturedPipeline found = captured.get(index);
    if (found == null) {
      lifecycle.checkOpen();
      Pipeline pipeline = maker.apply(sizes[index]);
      InvalidUsage.requireNonNull(pipeline, "captured size " + sizes[index], "pipeline");
      found = lifecycle.own(pipeline.capture());
      captured.set(index, found);
    }
    return found;
  }

  /** Closes all captured pipelines after the runs enqueued before. Idempotent. */
  @Override
  public void close() {
    lifecycle.close();
  }

  @Override
  public String toString() {
    return "captured sizes " + Arrays.toString(sizes);
  }
}
