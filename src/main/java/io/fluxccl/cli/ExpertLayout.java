// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.ExpertShape;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/**
 * The mixture of experts that {@code perf} measures: which experts every token of every rank has,
 * and so where each token is placed. The sizes are those by which DeepEP is measured.
 *
 * @param tokens of each rank
 * @param nRanks how many ranks
 */
record ExpertLayout(int tokens, int nRanks) {
  /** Values of a token. */
  static final int HIDDEN = 7168;

  static final int TOP_K = 8;
  private static final int LEAST_EXPERTS = 64;

  /** Returns the layout of a case. */
  static ExpertLayout of(PerfCase shape, int nRanks) {
    return new ExpertLayout(Math.toIntExact(shape.count() / HIDDEN), nRanks);
  }

  /**
   * Returns the cases of a collective.
   *
   * @param tokens of a rank, separated by commas
   * @param types what the tokens consist of when they are dispatched, by label; null for FLOAT8
   */
  static List<PerfCase> cases(Collective collective, String tokens, String types, int nRanks) {
    List<PerfCase> cases = new ArrayList<>();
    boolean dispatches = collective == Collective.DISPATCH;
    DataType type =
        !dispatches
            ? DataType.BFLOAT16
            : types == null ? DataType.FLOAT8_E4M3 : DataType.ofLabel(types);
    for (String number : tokens.split(",", -1)) {
      long count = (long) parse(number) * HIDDEN;
      // Refuses what can't be dispatched.
      new ExpertLayout(Math.toIntExact(count / HIDDEN), nRanks).shape(type);
      cases.add(new PerfCase(collective, count, type, dispatches ? null : ReduceOp.SUM, 0));
    }
    return cases;
  }

  private static int parse(String number) {
    try {
      return Integer.parseInt(number);
    } catch (NumberFormatException e) {
      throw new InvalidUsage("tokens=" + number + "; give numbers, separated by commas", e);
    }
  }

  int experts() {
    return (LEAST_EXPERTS + nRanks - 1) / nRanks * nRanks;
  }

  ExpertShape shape(DataType type) {
    return new ExpertShape(tokens, TOP_K, experts(), HIDDEN, type, nRanks * tokens);
  }

  /** Returns the experts of a token: different ones, the same in every run. */
  int[] expertsOf(int rank, int token) {
    return new Random(rank * 1_000_003L + token)
        .ints(0, experts())
        .distinct()
        .limit(TOP_K)
        .toArray();
  }

  /** Returns, for each token of a rank, whether it goes to another. */
  private boolean[] tokensFor(int from, int to) {
    boolean[] goes = new boolean[tokens];
    int each = experts() / nRanks;
    for (int token = 0; token < tokens; token++) {
      goes[token] = Arrays.stream(expertsOf(from, token)).anyMatch(id -> id / each == to);
    }
    return goes;
  }

  /** Returns the place of each token of a rank at another; -1 where it does not go there. */
  private int[] places(int from, int to) {
    int[] places = new int[tokens];
    int next = 0;
    for (int rank = 0; rank <= from; rank++) {
      boolean[] goes = tokensFor(rank, to);
      for (int token = 0; token < tokens; token++) {
        int place = goes[token] ? next++ : -1;
        if (rank == from) {
          places[token] = place;
        }
      }
    }
    return places;
  }

  /** Adds what a rank receives in a dispatch. */
  void addReceived(int rank, List<DataLayout.Segment> segments) {
    for (int from = 0; from < nRanks; from++) {
      int[] places = places(from, rank);
      for (int token = 0; token < tokens; token++) {
        if (places[token] >= 0) {
          segments.add(
              new DataLayout.Segment(
                  (long) places[token] * HIDDEN, HIDDEN, from, (long) token * HIDDEN));
        }
      }
    }
  }

  /** Returns the places of a rank's tokens, by receiver and token. */
  int[][] placesOf(int rank) {
    int[][] places = new int[nRanks][];
    for (int to = 0; to < nRanks; to++) {
      places[to] = places(rank, to);
    }
    return places;
  }

  /** Returns the plan that a dispatch leaves to a rank's combine: {@code experts.cuh}. */
  int[] plan(int rank) {
    int words = (tokens + Integer.SIZE - 1) / Integer.SIZE;
    int[] plan = new int[3 * nRanks * words];
    int next = 0;
    for (int peer = 0; peer < nRanks; peer++) {
      boolean[] sent = tokensFor(rank, peer);
      boolean[] received = tokensFor(peer, rank);
      for (int token = 0; token < tokens; token++) {
        int word = peer * words + token / Integer.SIZE;
        if (token % Integer.SIZE == 0) {
          plan[2 * nRanks * words + word] = next;
        }
        plan[word] |= sent[token] ? 1 << token : 0;
        plan[nRanks * words + word] |= received[token] ? 1 << token : 0;
        next += received[token] ? 1 : 0;
      }
    }
    return plan;
  }
}
