// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceKind;
import java.util.List;
import java.util.stream.IntStream;

/**
 * The hosts of the ranks and what is common to their devices: the same on every rank, except {@link
 * #rank}.
 *
 * @param rank this rank
 * @param nRanks how many ranks
 * @param kind of device, the same for all
 * @param hostOf for each rank the number of its host, hosts counted from 0 in order of their first
 *     rank
 * @param mapped whether ranks of one host map each other's memory (and no other ranks do)
 * @param multiprocessors of the smallest GPU; 0 on the host device
 * @param maxBlocks the limit that the options set for the blocks of a kernel; 0: none
 * @param computeCapability of the oldest GPU, {@code 10 * major + minor}; 0 on the host device
 * @param ranksPerGpu the most ranks of one process that share a GPU; 1 on the host device
 * @param withoutNvlink why algorithms that need NVLink can't be used, for example the first two
 *     GPUs of a host without one; empty if NVLink connects all GPUs of each host, and on the host
 *     device
 */
public record RankTopology(
    int rank,
    int nRanks,
    DeviceKind kind,
    List<Integer> hostOf,
    boolean mapped,
    int multiprocessors,
    int maxBlocks,
    int computeCapability,
    int ranksPerGpu,
    String withoutNvlink) {

  /** Creates the topology of ranks on the host device, or of GPUs that NVLink connects. */
  public RankTopology(
      int rank,
      int nRanks,
      DeviceKind kind,
      List<Integer> hostOf,
      boolean mapped,
      int multiprocessors,
      int maxBlocks,
      int computeCapability,
      int ranksPerGpu) {
    this(
        rank,
        nRanks,
        kind,
        hostOf,
        mapped,
        multiprocessors,
        maxBlocks,
        computeCapability,
        ranksPerGpu,
        "");
  }

  /** Returns whether NVLink connects all GPUs of each host; true on the host device. */
  public boolean hasNvlink() {
    return withoutNvlink.isEmpty();
  }

  /**
   * Returns the most blocks of a kernel of a rank, 1 or more: those that the options allow, and
   * that run at once beside the kernels of other ranks.
   *
   * @param kernels of a rank that must find room at once, one block on a multiprocessor
   */
  public int mostBlocks(int kernels) {
    int resident = multiprocessors / kernels / ranksPerGpu;
    return Math.max(1, maxBlocks == 0 ? resident : Math.min(maxBlocks, resident));
  }

  /** Returns the number of hosts. */
  public int hosts() {
    return 1 + hostOf.stream().mapToInt(Integer::intValue).max().orElse(0);
  }

  /** Returns the most ranks of a host. */
  public int mostRanksPerHost() {
    int[] ranks = new int[hosts()];
    int most = 0;
    for (int host : hostOf) {
      most = Math.max(most, ++ranks[host]);
    }
    return most;
  }

  /** Returns whether this rank maps the other rank's memory. */
  public boolean isMapped(int peer) {
    return mapped && hostOf.get(peer).equals(hostOf.get(rank));
  }

  /** Returns whether every rank maps the memory of all others. */
  public boolean allMapped() {
    return nRanks == 1 || mapped && hosts() == 1;
  }

  /** Returns the ranks of a host, in order. */
  public List<Integer> ranksOf(int host) {
    return IntStream.range(0, nRanks).filter(r -> hostOf.get(r) == host).boxed().toList();
  }
}
