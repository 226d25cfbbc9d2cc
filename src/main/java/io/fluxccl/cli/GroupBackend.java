package io.fluxccl.cli;

import io.fluxccl.group.RankGroup;
import io.fluxccl.group.RankGroupOptions;
import java.util.List;
import java.util.Map;

/** Ranks of the real library. */
final class GroupBackend implements PerfBackend {
  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    return new GroupRank(RankGroup.fromEnvironment(groupOptions(options)).join(), options);
  }

  @Override
  public InProcessRanks inProcess(int nRanks, RankOptions options) {
    List<RankGroup> groups = RankGroup.local(nRanks, groupOptions(options));
    return rank -> new GroupRank(groups.get(rank), options);
  }

  private static RankGroupOptions groupOptions(RankOptions options) {
    return new RankGroupOptions(options.timeout(), options.device());
  }

  @Override
  public Map<String, String> gpuSupport() {
    return GpuReport.support();
  }

  @Override
  public List<String> devices() {
    return GpuReport.devices();
  }

  @Override
  public List<String> algorithms() {
    return List.of(
        "direct, host: reduces on mapped memory, one shot up to 8 KiB; where all ranks share a host",
        "direct, GPU: packets in one shot up to 16 KiB and in two phases up to 1 MiB, then straight"
            + " on mapped memory; where all ranks share a host",
        "all-pairs: over channels and the proxy; where they do not, or with --transport ETHERNET");
  }
}
