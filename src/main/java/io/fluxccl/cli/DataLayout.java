// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * The layout of one rank's data in a case, and the input that each part of its output comes from.
 * Counts and offsets are elements.
 *
 * <p>An all-to-all-v has parts of 0 to 2 times the mean. Rank r sends to rank p part number (r + p)
 * modulo n of a row that grows evenly, so that all ranks have the same totals.
 *
 * @param shape the case
 * @param rank this rank
 * @param nRanks how many ranks there are
 */
record DataLayout(PerfCase shape, int rank, int nRanks) {
  /** In place of a rank: the combination of the inputs of all ranks. */
  static final int REDUCED = -1;

  /**
   * A part of the output.
   *
   * @param target where it begins in the output
   * @param length how long it is
   * @param source the rank whose input it comes from, or {@link #REDUCED}
   * @param from where it begins in that input
   */
  record Segment(long target, long length, int source, long from) {}

  /** Returns the larger of input and output; of experts as if every token went to every rank. */
  long extent() {
    return Math.max(inputExtent(), outputExtent());
  }

  /** Returns the length of an input, on a rank that has one. */
  long inputExtent() {
    return switch (shape.collective()) {
      case REDUCE_SCATTER, SCATTER, ALL_TO_ALL, ALL_TO_ALL_V, COMBINE -> nRanks * shape.count();
      case BARRIER -> 0;
      default -> shape.count();
    };
  }

  /** Returns the length of an output, on a rank that has one. */
  long outputExtent() {
    return switch (shape.collective()) {
      case ALL_GATHER, GATHER, ALL_TO_ALL, ALL_TO_ALL_V, DISPATCH -> nRanks * shape.count();
      case BARRIER -> 0;
      default -> shape.count();
    };
  }

  /** Returns whether this rank has an input. */
  boolean hasInput() {
    return switch (shape.collective()) {
      case BROADCAST, SCATTER -> rank == shape.root();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Returns whether this rank has an output. */
  boolean hasOutput() {
    return switch (shape.collective()) {
      case REDUCE, GATHER -> rank == shape.root();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Returns where the input begins in its buffer. */
  long inputOffset(BufferAliasing placement) {
    boolean part =
        shape.collective() == Collective.ALL_GATHER || shape.collective() == Collective.GATHER;
    return placement == BufferAliasing.IN_PLACE && part ? rank * shape.count() : 0;
  }

  /** Returns where the output begins in its buffer. */
  long outputOffset(BufferAliasing placement) {
    boolean part =
        shape.collective() == Collective.REDUCE_SCATTER || shape.collective() == Collective.SCATTER;
    return placement == BufferAliasing.IN_PLACE && part ? rank * shape.count() : 0;
  }

  /** Returns what this rank must get, in the order of the output, without gaps. */
  List<Segment> segments() {
    long count = shape.count();
    List<Segment> segments = new ArrayList<>();
    if (!hasOutput()) {
      return segments;
    }
    switch (shape.collective()) {
      case ALL_REDUCE, FUSED_ALL_REDUCE, REDUCE -> segments.add(new Segment(0, count, REDUCED, 0));
      case REDUCE_SCATTER -> segments.add(new Segment(0, count, REDUCED, rank * count));
      case BROADCAST -> segments.add(new Segment(0, count, shape.root(), 0));
      case SCATTER -> segments.add(new Segment(0, count, shape.root(), rank * count));
      case SEND_RECEIVE -> segments.add(new Segment(0, count, source(), 0));
      case ALL_GATHER, GATHER, ALL_TO_ALL -> {
        long from = shape.collective() == Collective.ALL_TO_ALL ? rank * count : 0;
        for (int peer = 0; peer < nRanks; peer++) {
          segments.add(new Segment(peer * count, count, peer, from));
        }
      }
      case ALL_TO_ALL_V -> {
        long target = 0;
        for (int peer = 0; peer < nRanks; peer++) {
          long length = part(peer, rank);
          segments.add(new Segment(target, length, peer, parts(peer, rank).sum()));
          target += length;
        }
      }
      case DISPATCH -> ExpertLayout.of(shape, nRanks).addReceived(rank, segments);
      case COMBINE, BARRIER -> {}
    }
    return segments;
  }

  /** Returns the rank that a send-receive sends to; the ranks form a ring. */
  int destination() {
    return (rank + 1) % nRanks;
  }

  /** Returns the rank that a send-receive receives from. */
  int source() {
    return (rank + nRanks - 1) % nRanks;
  }

  /** Returns how many elements this rank sends to each rank in an all-to-all-v, and gets back. */
  long[] counts() {
    return parts(rank, nRanks).toArray();
  }

  /** Returns how many elements a rank exchanges with each of the first {@code others} ranks. */
  private LongStream parts(int one, int others) {
    return IntStream.range(0, others).mapToLong(other -> part(one, other));
  }

  /** Returns how many elements two ranks exchange; symmetric in both. */
  private long part(int one, int other) {
    int number = (one + other) % nRanks;
    if (nRanks == 1) {
      return shape.count();
    }
    return number < nRanks - 1
        ? growing(number)
        : nRanks * shape.count() - IntStream.range(0, number).mapToLong(this::growing).sum();
  }

  private long growing(int number) {
    return 2 * shape.count() * number / (nRanks - 1);
  }
}
