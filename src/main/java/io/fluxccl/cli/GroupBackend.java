package io.fluxccl.cli;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.RankGroupOptions;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;

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
    CollectivesOptions collectives = RankGroupOptions.collectivesFromEnvironment();
    if (options.transport().isPresent()) {
      collectives = collectives.withTransport(options.transport().get());
    }
    if (options.tuning().isPresent()) {
      collectives = collectives.withTuning(options.tuning().get());
    }
    for (Map.Entry<Collective, String> choice : options.algorithms().entrySet()) {
      collectives = collectives.withAlgorithm(choice.getKey(), choice.getValue());
    }
    return new RankGroupOptions(options.timeout(), options.device(), collectives);
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
    return ServiceLoader.load(AlgorithmFamily.class).stream()
        .map(ServiceLoader.Provider::get)
        .sorted(Comparator.comparing(AlgorithmFamily::name))
        .flatMap(family -> family.description().stream().map(line -> family.name() + ": " + line))
        .toList();
  }
}
