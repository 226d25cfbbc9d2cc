package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.group.RankGroup;
import java.util.List;

/** Ranks of the real library. */
final class GroupBackend implements PerfBackend {
  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    refuseMissingDevice(options);
    return new GroupRank(RankGroup.fromEnvironment(options.timeout()).join(), options);
  }

  @Override
  public InProcessRanks inProcess(int nRanks, RankOptions options) {
    refuseMissingDevice(options);
    List<RankGroup> groups = RankGroup.local(nRanks, options.timeout());
    return rank -> new GroupRank(groups.get(rank), options);
  }

  private static void refuseMissingDevice(RankOptions options) {
    if (options.device() == DeviceChoice.CUDA) {
      throw new InvalidUsage("--device cuda: this build has no CUDA device; use --device host");
    }
  }

  @Override
  public List<String> devices() {
    return List.of();
  }

  @Override
  public List<String> algorithms() {
    return List.of(
        "direct: reduces on mapped memory, one shot up to 8 KiB; where all ranks share a host",
        "all-pairs: over channels and the proxy; where they do not, or with --transport ETHERNET");
  }
}
