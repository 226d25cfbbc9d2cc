package io.fluxccl.collective;

import io.fluxccl.bootstrap.Bootstrap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How the ranks of a job are spread over GPUs; all ranks see the same. */
final class GpuSharing {
  private GpuSharing() {}

  /**
   * How many ranks of one process share a GPU at most. Processes that share one take turns.
   *
   * @param cards of all ranks' GPUs
   * @param bootstrap says which ranks share a process
   */
  static int mostRanks(List<DeviceCard> cards, Bootstrap bootstrap) {
    Map<String, Integer> sharing = new HashMap<>();
    for (int rank = 0; rank < cards.size(); rank++) {
      String gpu = bootstrap.processHash(rank) + " " + cards.get(rank).pciBusId();
      sharing.merge(gpu, 1, Integer::sum);
    }
    return sharing.values().stream().mapToInt(Integer::intValue).max().orElse(1);
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
}
