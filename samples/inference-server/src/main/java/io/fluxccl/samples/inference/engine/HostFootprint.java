// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static io.fluxccl.samples.inference.engine.ModelOptions.PAGE;

import io.fluxccl.samples.inference.model.LlamaConfig;
import java.util.Locale;

/**
 * The memory of a rank on the host device, in the heap of its JVM.
 *
 * @param weights bytes of the weights
 * @param rows bytes for the rows of a step
 * @param page bytes of a page of the cache
 */
record HostFootprint(long weights, long rows, long page) {
  private static final int MOST_ELEMENTS = Integer.MAX_VALUE - 8;
  private static final double USABLE = 0.9;

  static HostFootprint of(LlamaConfig config, ModelOptions options, int ranks) {
    long hidden = config.hidden();
    long heads = (long) config.heads() * config.headDim() / ranks;
    long kvHeads = (config.kvHeads() + ranks - 1L) / ranks * config.headDim();
    long units = config.intermediate() / ranks;
    long tokens = config.vocabulary() / ranks;
    long layer = hidden * (2 * heads + 2 * kvHeads + 3 * units);
    long weights = config.layers() * layer + hidden * (config.vocabulary() + tokens);
    long widest = Math.max(Math.max(2 * units, hidden), Math.max(heads + 2 * kvHeads, tokens));
    requireIndexable("--rows", options.maxRows(), widest);
    requireIndexable("--pages", options.pages(), PAGE * kvHeads);
    return new HostFootprint(
        weights * Float.BYTES,
        3L * options.maxRows() * widest * Float.BYTES,
        2L * config.layers() * PAGE * kvHeads * Float.BYTES);
  }

  private static void requireIndexable(String option, long value, long width) {
    if (value > MOST_ELEMENTS / width) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "%s=%d; the host device supports up to %d for this model",
              option,
              value,
              MOST_ELEMENTS / width));
    }
  }

  /**
   * Refuses a number of pages for which there is no memory.
   *
   * @param heap bytes of the largest heap of a rank's JVM
   * @param machine bytes of the machine's memory for each rank
   */
  void require(int pages, long heap, long machine) {
    long limit = (long) (USABLE * Math.min(heap, machine));
    long fit = (limit - weights - rows) / page;
    if (fit < pages) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "--pages=%d; a rank's cache would take %d MiB, its weights take %d MiB and its rows"
                  + " %d MiB, but its JVM has %d MiB and the machine %d MiB a rank: %s",
              pages,
              mebibytes(page * pages),
              mebibytes(weights),
              mebibytes(rows),
              mebibytes(heap),
              mebibytes(machine),
              fit < 1
                  ? "give more ranks, or a larger heap by FLUXCCL_JAVA_OPTS=-Xmx..."
                  : "at most --pages=" + fit + " fit"));
    }
  }

  private static long mebibytes(long bytes) {
    return (bytes + (1 << 20) - 1) >> 20;
  }
}
