// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.settings.Settings;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.TreeSet;

/**
 * The rank and the number of ranks that the variables of one launcher give. Variables of two
 * launchers that disagree are refused, because one of them belongs to another job.
 *
 * @param of the launcher
 * @param rankName the name of the variable with the rank
 * @param sizeName the name of the variable with the number of ranks
 * @param rank the rank
 * @param nRanks how many ranks the job has
 */
record LauncherPlace(Launcher of, String rankName, String sizeName, int rank, int nRanks) {
  static final String KUBERNETES = "Kubernetes";
  static final String SLURM = "Slurm";
  private static final String OWN = "FluxCCL";
  private static final String PMI = "PMI";
  private static final String INDEX = "JOB_COMPLETION_INDEX";

  private static final List<Launcher> LAUNCHERS =
      List.of(
          new Launcher(
              OWN, "FLUXCCL_RANK", "FLUXCCL_NRANKS", "FLUXCCL_LOCAL_RANK", "FLUXCCL_LOCAL_SIZE"),
          // Kubernetes gives a pod its index, but not the number of pods.
          new Launcher(KUBERNETES, INDEX, "FLUXCCL_NRANKS", "", ""),
          new Launcher(
              "Open MPI",
              "OMPI_COMM_WORLD_RANK",
              "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK",
              "OMPI_COMM_WORLD_LOCAL_SIZE"),
          new Launcher(PMI, "PMI_RANK PMIX_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
          new Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
          new Launcher(
              SLURM,
              "SLURM_PROCID PMIX_RANK",
              // Not SLURM_NTASKS: a batch script has it, too, and is no rank of its steps.
              "SLURM_STEP_NUM_TASKS",
              "SLURM_LOCALID",
              ""));

  /** The place of a process that no launcher has started: the only rank. */
  static final LauncherPlace NONE =
      new LauncherPlace(new Launcher(RankEnvironment.NO_LAUNCHER, "", "", "", ""), "", "", 0, 1);

  /**
   * The variables that a launcher sets, alternatives separated by a space.
   *
   * @param name of the launcher
   * @param rank its variables for the rank
   * @param size its variables for the number of ranks
   * @param localRank its variables for the rank within the host
   * @param localSize its variables for the number of ranks on the host
   */
  record Launcher(String name, String rank, String size, String localRank, String localSize) {}

  /**
   * Returns the place that launchers have set; empty if none has.
   *
   * @throws InvalidUsage if a variable makes no sense, or two launchers disagree
   */
  static Optional<LauncherPlace> in(Settings from) {
    Optional<LauncherPlace> own = read(LAUNCHERS.get(0), from);
    if (own.isPresent()) {
      // They precede all others, because `launch` also runs inside other launchers.
      return own;
    }
    refuseHalf(from);
    List<LauncherPlace> all = new ArrayList<>();
    LAUNCHERS.forEach(each -> read(each, from).ifPresent(all::add));
    all.forEach(each -> each.checkAgainst(all.get(0), from));
    return all.stream()
        // srun --mpi=pmi2 sets PMI's variables, too, but only its own give the address.
        .filter(each -> each.is(SLURM) && all.get(0).is(PMI) && each.agrees(all.get(0)))
        .findFirst()
        .or(() -> all.stream().findFirst());
  }

  private static Optional<LauncherPlace> read(Launcher launcher, Settings from) {
    String rankName = from.firstSet(launcher.rank);
    String sizeName = from.firstSet(launcher.size);
    if (rankName == null || sizeName == null) {
      return Optional.empty();
    }
    int nRanks = from.number(sizeName, 1, BootstrapFrameCodec.MAX_RANKS).getAsInt();
    int rank = from.number(rankName, 0, nRanks - 1).getAsInt();
    return Optional.of(new LauncherPlace(launcher, rankName, sizeName, rank, nRanks));
  }

  private static void refuseHalf(Settings from) {
    Launcher own = LAUNCHERS.get(0);
    if (from.text(own.rank) != null) {
      throw InvalidUsage.of("%s is not set, though %s is", own.size, own.rank);
    }
    // An indexed Job of Kubernetes sets the size alone.
    if (from.text(own.size) != null && from.text(INDEX) == null) {
      throw InvalidUsage.of("%s is not set, though %s is", own.rank, own.size);
    }
  }

  /** Returns the launcher's name. */
  String launcher() {
    return of.name;
  }

  /** Returns this rank's number on its host, if the launcher sets it. */
  OptionalInt localRank(Settings from) {
    return from.number(of.localRank, 0, localSize(from).orElse(nRanks) - 1);
  }

  /** Returns how many ranks run on this host, if the launcher sets it. */
  OptionalInt localSize(Settings from) {
    return from.number(of.localSize, 1, nRanks);
  }

  private boolean is(String name) {
    return of.name.equals(name);
  }

  private boolean agrees(LauncherPlace other) {
    return rank == other.rank && nRanks == other.nRanks;
  }

  /** Refuses this place if it contradicts the one of the launcher that has precedence. */
  private void checkAgainst(LauncherPlace first, Settings from) {
    if (!agrees(first) && mayHost(first, from)) {
      return;
    }
    if (is(SLURM)) {
      refuseHeterogeneous(from);
    }
    if (!agrees(first)) {
      throw InvalidUsage.of(
          "%s (%s) contradicts %s (%s): unset %s if %s started this process, %s if %s did",
          first.values(),
          first.of.name,
          values(),
          of.name,
          first.names(),
          of.name,
          names(),
          first.of.name);
    }
  }

  /**
   * Returns whether that launcher may run inside this one: a Slurm step with one task on each node
   * starts torchrun, or the daemons of mpirun.
   */
  private boolean mayHost(LauncherPlace inner, Settings from) {
    String nodes = from.firstSet("SLURM_STEP_NUM_NODES SLURM_NNODES");
    return is(SLURM)
        && nodes != null
        && from.number(nodes, 1, BootstrapFrameCodec.MAX_RANKS).getAsInt() == nRanks
        && inner.nRanks >= nRanks;
  }

  /** The components of a heterogeneous step have different tasks, nodes and node lists. */
  private static void refuseHeterogeneous(Settings from) {
    for (String name : new TreeSet<>(from.variables().keySet())) {
      String value = from.text(name);
      boolean isSize = name.equals("SLURM_HET_SIZE") && !"1".equals(value);
      if (value != null && (isSize || name.startsWith("SLURM_HET_GROUP"))) {
        throw InvalidUsage.of(
            "%s=%s: heterogeneous steps of Slurm are not supported, because each component counts"
                + " its own tasks and nodes; set FLUXCCL_RANK, FLUXCCL_NRANKS and FLUXCCL_ADDR for"
                + " each task, or, for a step in one component (srun --het-group=0), unset %s",
            name, value, name);
      }
    }
  }

  private String values() {
    return rankName + "=" + rank + " of " + sizeName + "=" + nRanks;
  }

  private String names() {
    return rankName + " and " + sizeName;
  }
}
