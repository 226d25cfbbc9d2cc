package io.fluxccl.collective;

import io.fluxccl.bootstrap.Bootstrap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * How large a kernel of an all-reduce may be. Blocks wait for the same blocks of all ranks, so
 * those of all ranks that share a GPU must fit on it at once; and every rank must decide alike, out
 * of what all of them know.
 *
 * @param maxBlocks blocks of {@link #MAX_THREADS} threads that a rank may launch, 1 or more
 * @param ranksPerGpu the most ranks of one process that share a GPU
 */
record GpuGrid(int maxBlocks, int ranksPerGpu) {
  /** {@code kMaxThreads} of all_reduce.cu. */
  static final int MAX_THREADS = 512;

  /** {@code kMaxBlocks} of mapped_ranks.cuh. */
  static final int MAX_BLOCKS = 64;

  /** A rank may have two all-reduces in flight, on two streams. */
  private static final int CONCURRENT = 2;

  /**
   * For the ranks of a job.
   *
   * @param cards of their GPUs, by rank
   * @param bootstrap says which ranks share a process; GPUs take turns between processes
   */
  static GpuGrid of(List<DeviceCard> cards, Bootstrap bootstrap) {
    Map<String, Integer> sharing = new HashMap<>();
    int multiprocessors = Integer.MAX_VALUE;
    for (int rank = 0; rank < cards.size(); rank++) {
      DeviceCard card = cards.get(rank);
      multiprocessors = Math.min(multiprocessors, card.multiprocessors());
      sharing.merge(bootstrap.processHash(rank) + " " + card.pciBusId(), 1, Integer::sum);
    }
    int most = sharing.values().stream().mapToInt(Integer::intValue).max().orElse(1);
    return of(multiprocessors, most);
  }

  /**
   * What is slow about how ranks are spread over GPUs, if anything is.
   *
   * @param cards of their GPUs, by rank
   * @param bootstrap says who shares a host and a process
   */
  static Optional<String> remark(List<DeviceCard> cards, Bootstrap bootstrap) {
    for (int one = 0; one < cards.size(); one++) {
      for (int other = 0; other < one; other++) {
        if (cards.get(one).pciBusId().equals(cards.get(other).pciBusId())
            && bootstrap.hostHash(one) == bootstrap.hostHash(other)
            && bootstrap.processHash(one) != bootstrap.processHash(other)) {
          return Optional.of(
              "ranks "
                  + other
                  + " and "
                  + one
                  + " are processes that share GPU "
                  + cards.get(one).pciBusId()
                  + ": it lets one of them run at a time, for milliseconds, so what waits for the"
                  + " other is slow; start as many ranks as there are GPUs");
        }
      }
    }
    return Optional.empty();
  }

  /**
   * For GPUs of so many multiprocessors, each shared by so many ranks of a process. A block of so
   * many threads may take a multiprocessor to itself.
   */
  static GpuGrid of(int multiprocessors, int ranksPerGpu) {
    int share = multiprocessors / CONCURRENT / ranksPerGpu;
    return new GpuGrid(Math.max(1, Math.min(MAX_BLOCKS, share)), ranksPerGpu);
  }

  /** As many blocks as that many units of work keep busy, as far as there may be so many. */
  int blocksFor(long units, int unitsPerBlock) {
    long wanted = (units + unitsPerBlock - 1) / unitsPerBlock;
    return (int) Math.max(1, Math.min(maxBlocks, wanted));
  }
}
