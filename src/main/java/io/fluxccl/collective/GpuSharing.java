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
   * @param devices of all ranks' GPUs
   * @param bootstrap says which ranks share a process
   */
  static int mostRanks(List<DeviceDescription> devices, Bootstrap bootstrap) {
    Map<String, Integer> sharing = new HashMap<>();
    for (int rank = 0; rank < devices.size(); rank++) {
      String gpu = bootstrap.processHash(rank) + " " + devices.get(rank).pciBusId();
      sharing.merge(gpu, 1, Integer::sum);
    }
    return sharing.values().stream().mapToInt(Integer::intValue).max().orElse(1);
  }

  /**
   * What is slow about how ranks are spread over GPUs, if anything is.
   *
   * @param devices of their GPUs, by rank
   * @param bootstrap says who shares a host and a process
   */
  static Optional<String> remark(List<DeviceDescription> devices, Bootstrap bootstrap) {
    for (int one = 0; one < devices.size(); one++) {
      for (int other = 0; other < one; other++) {
        if (devices.get(one).pciBusId().equals(devices.get(other).pciBusId())
            && bootstrap.hostHash(one) == bootstrap.hostHash(other)
            && bootstrap.processHash(one) != bootstrap.processHash(other)) {
          return Optional.of(
              "ranks "
                  + other
                  + " and "
                  + one
                  + " are processes that share GPU "
                  + devices.get(one).pciBusId()
                  + ": it lets one of them run at a time, for milliseconds, so what waits for the"
                  + " other is slow; start as many ranks as there are GPUs");
        }
      }
    }
    return Optional.empty();
  }
}
