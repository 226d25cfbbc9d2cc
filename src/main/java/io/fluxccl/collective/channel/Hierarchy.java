// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.pipe.CacheLines;
import java.util.List;
import java.util.stream.IntStream;

/**
 * The ranks of this rank's host, and its rail: the ranks with the same place on their hosts.
 *
 * @param local ranks of this host, in order
 * @param localIndex this rank's among them
 * @param rail a rank of each host, in the hosts' order
 * @param railIndex this rank's among them
 * @param ranks of all hosts, grouped by host, each group in order
 */
record Hierarchy(int[] local, int localIndex, int[] rail, int railIndex, int[] ranks) {
  private static final int LEAST_SPLIT = 128 << 10;

  /** Returns whether several hosts have equally many ranks, more than one each. */
  static boolean isPossible(RankTopology topology) {
    return isRegular(topology) && topology.nRanks() > topology.hosts();
  }

  /** Returns whether several hosts have equally many ranks. */
  static boolean isRegular(RankTopology topology) {
    int hosts = topology.hosts();
    int each = topology.nRanks() / hosts;
    return topology.mapped()
        && hosts > 1
        && IntStream.range(0, hosts).allMatch(host -> topology.ranksOf(host).size() == each);
  }

  static Hierarchy of(RankTopology topology) {
    int host = topology.hostOf().get(topology.rank());
    List<Integer> local = topology.ranksOf(host);
    int localIndex = local.indexOf(topology.rank());
    List<List<Integer>> all =
        IntStream.range(0, topology.hosts()).mapToObj(topology::ranksOf).toList();
    int[] rail = all.stream().mapToInt(ranks -> ranks.get(localIndex)).toArray();
    int[] ranks = all.stream().flatMap(List::stream).mapToInt(Integer::intValue).toArray();
    int[] here = local.stream().mapToInt(Integer::intValue).toArray();
    return new Hierarchy(here, localIndex, rail, host, ranks);
  }

  /** Returns the rank at a place of a host. */
  int rank(int host, int place) {
    return ranks[host * local.length + place];
  }

  int hostOf(int rank) {
    return indexOf(rank) / local.length;
  }

  int placeOf(int rank) {
    return indexOf(rank) % local.length;
  }

  private int indexOf(int rank) {
    int index = 0;
    while (ranks[index] != rank) {
      index++;
    }
    return index;
  }

  int nLocal() {
    return local.length;
  }

  int hosts() {
    return rail.length;
  }

  /**
   * Returns whether hosts exchange an all-reduce's pieces in parts, one for each host to reduce;
   * otherwise a whole piece is sent to all hosts at once. With two hosts, parts would be as many
   * bytes, later; with few bytes the second hop costs more than it saves.
   *
   * @param bytes of the whole buffer
   */
  boolean isSplit(long bytes) {
    return isSplit(hosts(), bytes);
  }

  static boolean isSplit(int hosts, long bytes) {
    return hosts > 2 && bytes > LEAST_SPLIT;
  }

  /** Returns the bytes of a host's part of a split piece; the last parts may be shorter. */
  long stride(long pieceBytes) {
    return CacheLines.roundUp((pieceBytes + hosts() - 1) / hosts());
  }
}
