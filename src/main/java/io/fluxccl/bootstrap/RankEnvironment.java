// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.settings.Settings;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Supplier;

/**
 * This process's place in the job, read from the environment variables that its launcher sets:
 * FluxCCL's own first, then those of an indexed Job of Kubernetes, Open MPI, PMI (MPICH, Hydra),
 * torchrun and Slurm. With none of them, a job of one rank. If two launchers other than FluxCCL
 * disagree about the rank or the number of ranks, both are refused, because one of them belongs to
 * another job. Immutable.
 *
 * <p>FluxCCL's own: FLUXCCL_RANK, FLUXCCL_NRANKS, FLUXCCL_LOCAL_RANK, FLUXCCL_LOCAL_SIZE,
 * FLUXCCL_ADDR ({@code ip:port} or {@code interface:ip:port}), FLUXCCL_UNIQUE_ID (base64),
 * FLUXCCL_SECRET, FLUXCCL_SECRET_FILE. If all ranks run on one host, address and secret may be left
 * out: a loopback port is derived from the job's identity.
 *
 * @param launcher the launcher whose variables were found, or {@code none}
 * @param sizeVariable the name of the variable with the number of ranks; empty without a launcher
 * @param rank this rank
 * @param nRanks how many ranks the job has
 * @param localRank this rank's number on its host, if the launcher sets it
 * @param localSize how many ranks run on this host, if the launcher sets it
 * @param address the address at which rank 0 hosts the root, given or derived
 * @param jobIdentity a text that only this job's ranks have, if the address was derived; else empty
 * @param uniqueId the id to join by; it has precedence over the address
 * @param secret the job's secret, if one is given
 */
public record RankEnvironment(
    String launcher,
    Optional<String> sizeVariable,
    int rank,
    int nRanks,
    OptionalInt localRank,
    OptionalInt localSize,
    Optional<String> address,
    String jobIdentity,
    Optional<UniqueId> uniqueId,
    Optional<JobSecret> secret) {
  static final String ADDRESS = "FLUXCCL_ADDR";
  private static final String UNIQUE_ID = "FLUXCCL_UNIQUE_ID";
  static final String NO_LAUNCHER = "none";
  private static final String CODE = "code";

  /**
   * Returns a place that code chooses; a job of several ranks needs an address or an id as well.
   *
   * @param rank 0 to {@code nRanks - 1}
   * @param nRanks 1 or more
   * @throws InvalidUsage if one of them is out of range
   */
  public static RankEnvironment of(int rank, int nRanks) {
    checkPlace(rank, nRanks);
    return new RankEnvironment(
        CODE,
        Optional.empty(),
        rank,
        nRanks,
        OptionalInt.empty(),
        OptionalInt.empty(),
        Optional.ofNullable(nRanks == 1 ? RootAddress.Derived.ONE_RANK : null),
        "",
        Optional.empty(),
        JobSecret.from(System.getenv()));
  }

  /**
   * Reads this process's environment.
   *
   * @throws InvalidUsage naming the variable that makes no sense
   */
  public static RankEnvironment fromEnvironment() {
    return from(System.getenv(), RootAddress.Derived::ofParentProcess);
  }

  /**
   * Reads an environment.
   *
   * @param variables by name
   * @return the place in the job
   * @throws InvalidUsage naming the variable that makes no sense
   */
  public static RankEnvironment from(Map<String, String> variables) {
    return from(variables, () -> null);
  }

  private static RankEnvironment from(Map<String, String> variables, Supplier<String> lastResort) {
    Settings from = Settings.of(variables);
    String given = from.text(ADDRESS);
    from.word(ADDRESS, RootAddress::parseList);
    Optional<UniqueId> id = from.word(UNIQUE_ID, UniqueId::fromBase64);
    Optional<JobSecret> secret = JobSecret.from(variables);
    boolean derived = given == null && id.isEmpty();
    Optional<LauncherPlace> launched = LauncherPlace.in(from);
    LauncherPlace place = launched.orElse(LauncherPlace.NONE);
    OptionalInt localSize = launched.isPresent() ? place.localSize(from) : OptionalInt.of(1);
    RootAddress.Derived address =
        derived
            ? RootAddress.Derived.of(
                place.launcher(), from, place.rank(), place.nRanks(), localSize, lastResort)
            : RootAddress.Derived.given(given);
    return new RankEnvironment(
        place.launcher(),
        launched.map(LauncherPlace::sizeName),
        place.rank(),
        place.nRanks(),
        launched.isPresent() ? place.localRank(from) : OptionalInt.of(0),
        localSize,
        Optional.ofNullable(address.text()),
        address.jobIdentity(),
        id,
        secret);
  }

  /**
   * Returns this place with an address of the root, and without an id.
   *
   * @throws InvalidUsage if the address has another form than FLUXCCL_ADDR
   */
  public RankEnvironment withAddress(String newAddress) {
    RootAddress.parseList(newAddress);
    return with(Optional.of(newAddress), "", Optional.empty(), secret);
  }

  /** Returns this place with an id to join by. */
  public RankEnvironment withUniqueId(UniqueId id) {
    return with(address, jobIdentity, Optional.of(id), secret);
  }

  /** Returns this place with a secret. */
  public RankEnvironment withSecret(JobSecret newSecret) {
    return with(address, jobIdentity, uniqueId, Optional.of(newSecret));
  }

  private RankEnvironment with(
      Optional<String> newAddress,
      String newIdentity,
      Optional<UniqueId> newId,
      Optional<JobSecret> newSecret) {
    return new RankEnvironment(
        launcher,
        sizeVariable,
        rank,
        nRanks,
        localRank,
        localSize,
        newAddress,
        newIdentity,
        newId,
        newSecret);
  }

  /** Returns false for a job of one rank without a launcher. */
  public boolean launched() {
    return !launcher.equals(NO_LAUNCHER);
  }

  String requireAddress() {
    return address.orElseThrow(
        () ->
            InvalidUsage.of(
                "no address for the root: rank %s of %s was started by %s; set %s=ip:port, an"
                    + " address of rank 0's host, on all ranks, and %s; or set both by JoinOptions",
                rank, nRanks, launcher, ADDRESS, JobSecret.VARIABLE));
  }

  @Override
  public String toString() {
    return Text.of(
        "RankEnvironment(launcher=%s, rank=%s, nRanks=%s, localRank=%s, address=%s, uniqueId=%s)",
        launcher,
        rank,
        nRanks,
        localRank.isPresent() ? localRank.getAsInt() : "unknown",
        address.orElse(null),
        uniqueId.orElse(null));
  }

  static void checkPlace(int rank, int nRanks) {
    if (nRanks < 1 || nRanks > BootstrapFrameCodec.MAX_RANKS) {
      throw InvalidUsage.of("nRanks=%s; give 1 to %s", nRanks, BootstrapFrameCodec.MAX_RANKS);
    }
    if (rank < 0 || rank >= nRanks) {
      throw InvalidUsage.of("rank=%s of nRanks=%s; give 0 to nRanks - 1", rank, nRanks);
    }
  }
}
