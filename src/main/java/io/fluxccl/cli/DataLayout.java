package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import java.util.ArrayList;
import java.util.List;

/**
 * Where one rank's data lies in a case, and where in whose input what it must get comes from.
 * Counts and offsets are elements.
 *
 * <p>An all-to-all-v has parts of 0 to 2 times the mean: rank r gives rank p part number (r + p)
 * modulo n of a row that grows evenly, so that all ranks have the same totals.
 */
final class DataLayout {
  /** In place of a rank: the combination of all ranks' inputs. */
  static final int REDUCED = -1;

  /**
   * A part of the output.
   *
   * @param target where it begins in the output
   * @param length how long it is
   * @param source whose input it comes from, or {@link #REDUCED}
   * @param from where it begins in that input
   */
  record Segment(long target, long length, int source, long from) {}

  private final PerfCase shape;
  private final int rank;
  private final int nRanks;

  DataLayout(PerfCase shape, int rank, int nRanks) {
    this.shape = shape;
    this.rank = rank;
    this.nRanks = nRanks;
  }

  /** How much memory an input takes, on whichever rank has one. */
  long inputExtent() {
    return switch (shape.collective()) {
      case REDUCE_SCATTER, SCATTER, ALL_TO_ALL, ALL_TO_ALL_V -> nRanks * shape.count();
      case BARRIER -> 0;
      default -> shape.count();
    };
  }

  /** How much memory an output takes, on whichever rank has one. */
  long outputExtent() {
    return switch (shape.collective()) {
      case ALL_GATHER, GATHER, ALL_TO_ALL, ALL_TO_ALL_V -> nRanks * shape.count();
      case BARRIER -> 0;
      default -> shape.count();
    };
  }

  /** Whether this rank puts something in. */
  boolean hasInput() {
    return switch (shape.collective()) {
      case BROADCAST, SCATTER -> rank == shape.root();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Whether this rank gets something out. */
  boolean hasOutput() {
    return switch (shape.collective()) {
      case REDUCE, GATHER -> rank == shape.root();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Where the input begins in its buffer. */
  long inputOffset(Placement placement) {
    boolean part =
        shape.collective() == Collective.ALL_GATHER || shape.collective() == Collective.GATHER;
    return placement == Placement.IN_PLACE && part ? rank * shape.count() : 0;
  }

  /** Where the output begins in its buffer. */
  long outputOffset(Placement placement) {
    boolean part =
        shape.collective() == Collective.REDUCE_SCATTER || shape.collective() == Collective.SCATTER;
    return placement == Placement.IN_PLACE && part ? rank * shape.count() : 0;
  }

  /** What this rank must get, in the order of the output, without gaps. */
  List<Segment> segments() {
    long count = shape.count();
    List<Segment> segments = new ArrayList<>();
    if (!hasOutput()) {
      return segments;
    }
    switch (shape.collective()) {
      case ALL_REDUCE, REDUCE -> segments.add(new Segment(0, count, REDUCED, 0));
      case REDUCE_SCATTER -> segments.add(new Segment(0, count, REDUCED, rank * count));
      case BROADCAST -> segments.add(new Segment(0, count, shape.root(), 0));
      case SCATTER -> segments.add(new Segment(0, count, shape.root(), rank * count));
      case SEND_RECEIVE -> segments.add(new Segment(0, count, source(), 0));
      case ALL_GATHER, GATHER -> {
        for (int peer = 0; peer < nRanks; peer++) {
          segments.add(new Segment(peer * count, count, peer, 0));
        }
      }
      case ALL_TO_ALL -> {
        for (int peer = 0; peer < nRanks; peer++) {
          segments.add(new Segment(peer * count, count, peer, rank * count));
        }
      }
      case ALL_TO_ALL_V -> {
        long target = 0;
        for (int peer = 0; peer < nRanks; peer++) {
          long from = 0;
          for (int before = 0; before < rank; before++) {
            from += part(peer, before);
          }
          segments.add(new Segment(target, part(peer, rank), peer, from));
          target += part(peer, rank);
        }
      }
      case BARRIER -> {}
    }
    return segments;
  }

  /** To whom a send-receive sends: the ranks form a ring. */
  int destination() {
    return (rank + 1) % nRanks;
  }

  /** From whom a send-receive receives. */
  int source() {
    return (rank + nRanks - 1) % nRanks;
  }

  /** How many elements this rank gives each rank in an all-to-all-v, and gets from it. */
  long[] counts() {
    long[] counts = new long[nRanks];
    for (int peer = 0; peer < nRanks; peer++) {
      counts[peer] = part(rank, peer);
    }
    return counts;
  }

  /** Symmetric in the two. */
  private long part(int one, int other) {
    int number = (one + other) % nRanks;
    if (nRanks == 1) {
      return shape.count();
    }
    if (number < nRanks - 1) {
      return growing(number);
    }
    long others = 0;
    for (int i = 0; i < nRanks - 1; i++) {
      others += growing(i);
    }
    return nRanks * shape.count() - others;
  }

  private long growing(int number) {
    return 2 * shape.count() * number / (nRanks - 1);
  }
}
