package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Supplier;

/**
 * This process's place in the job, read from the environment variables that its launcher sets:
 * FluxCCL's own first, then those of Open MPI, PMI (MPICH, Hydra), torchrun and Slurm. With none of
 * them, a job of one rank. Immutable.
 *
 * <p>FluxCCL's own: FLUXCCL_RANK, FLUXCCL_NRANKS, FLUXCCL_LOCAL_RANK, FLUXCCL_LOCAL_SIZE,
 * FLUXCCL_ADDR ({@code ip:port} or {@code interface:ip:port}), FLUXCCL_UNIQUE_ID (base64),
 * FLUXCCL_SECRET, FLUXCCL_SECRET_FILE. Where all ranks run on one host, address and secret may be
 * left out: a loopback port is derived from the job's identity.
 */
public final class RankEnvironment {
  private static final String ADDRESS = "FLUXCCL_ADDR";
  private static final String UNIQUE_ID = "FLUXCCL_UNIQUE_ID";
  private static final String NO_LAUNCHER = "none";

  private static final List<Launcher> LAUNCHERS =
      List.of(
          new Launcher(
              "FluxCCL",
              List.of("FLUXCCL_RANK"),
              List.of("FLUXCCL_NRANKS"),
              List.of("FLUXCCL_LOCAL_RANK"),
              List.of("FLUXCCL_LOCAL_SIZE")),
          new Launcher(
              "Open MPI",
              List.of("OMPI_COMM_WORLD_RANK"),
              List.of("OMPI_COMM_WORLD_SIZE"),
              List.of("OMPI_COMM_WORLD_LOCAL_RANK"),
              List.of("OMPI_COMM_WORLD_LOCAL_SIZE")),
          new Launcher(
              "PMI",
              List.of("PMI_RANK", "PMIX_RANK"),
              List.of("PMI_SIZE"),
              List.of("MPI_LOCALRANKID"),
              List.of("MPI_LOCALNRANKS")),
          new Launcher(
              "torchrun",
              List.of("RANK"),
              List.of("WORLD_SIZE"),
              List.of("LOCAL_RANK"),
              List.of("LOCAL_WORLD_SIZE")),
          new Launcher(
              "Slurm",
              List.of("SLURM_PROCID", "PMIX_RANK"),
              List.of("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
              List.of("SLURM_LOCALID"),
              List.of()));

  private final String launcher;
  private final String sizeVariable;
  private final int rank;
  private final int nRanks;
  private final OptionalInt localRank;
  private final OptionalInt localSize;
  private final String address;
  private final UniqueId uniqueId;
  private final JobSecret secret;
  private final String jobIdentity;

  private RankEnvironment(
      String launcher,
      String sizeVariable,
      int rank,
      int nRanks,
      OptionalInt localRank,
      OptionalInt localSize,
      RootAddress.Derived address,
      UniqueId uniqueId,
      JobSecret secret) {
    this.launcher = launcher;
    this.sizeVariable = sizeVariable;
    this.rank = rank;
    this.nRanks = nRanks;
    this.localRank = localRank;
    this.localSize = localSize;
    this.address = address.text();
    this.jobIdentity = address.jobIdentity();
    this.uniqueId = uniqueId;
    this.secret = secret;
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
    Variables from = new Variables(variables);
    String given = from.text(ADDRESS);
    if (given != null) {
      checkAddress(given);
    }
    UniqueId id = uniqueId(from);
    JobSecret secret = JobSecret.from(variables).orElse(null);
    for (Launcher each : LAUNCHERS) {
      String rankName = from.firstSet(each.rank);
      String sizeName = from.firstSet(each.size);
      if (rankName == null || sizeName == null) {
        if (each.name.equals("FluxCCL") && (rankName != null || sizeName != null)) {
          throw rankName != null
              ? InvalidUsage.of("FLUXCCL_NRANKS is not set, though %s is", rankName)
              : InvalidUsage.of("FLUXCCL_RANK is not set, though %s is", sizeName);
        }
        continue;
      }
      int nRanks = from.number(sizeName, 1, BootstrapFrameCodec.MAX_RANKS);
      int rank = from.number(rankName, 0, nRanks - 1);
      OptionalInt localSize = from.optional(each.localSize, 1, nRanks);
      OptionalInt localRank = from.optional(each.localRank, 0, localSize.orElse(nRanks) - 1);
      RootAddress.Derived address =
          given != null || id != null
              ? RootAddress.Derived.given(given)
              : RootAddress.Derived.of(each.name, from, nRanks, localSize, lastResort);
      return new RankEnvironment(
          each.name, sizeName, rank, nRanks, localRank, localSize, address, id, secret);
    }
    return new RankEnvironment(
        NO_LAUNCHER,
        null,
        0,
        1,
        OptionalInt.of(0),
        OptionalInt.of(1),
        RootAddress.Derived.given(
            given != null || id != null ? given : RootAddress.Derived.ONE_RANK),
        id,
        secret);
  }

  private static void checkAddress(String address) {
    try {
      RootAddress.parse(address);
    } catch (InvalidUsage e) {
      throw new InvalidUsage(ADDRESS + ": " + e.getMessage(), e);
    }
  }

  private static UniqueId uniqueId(Variables from) {
    String text = from.text(UNIQUE_ID);
    try {
      return text == null ? null : UniqueId.fromBase64(text);
    } catch (InvalidUsage e) {
      throw new InvalidUsage(UNIQUE_ID + ": " + e.getMessage(), e);
    }
  }

  /** Returns false for a job of one rank without a launcher. */
  public boolean launched() {
    return !launcher.equals(NO_LAUNCHER);
  }

  /** Returns this rank. */
  public int rank() {
    return rank;
  }

  /** Returns how many ranks the job has. */
  public int nRanks() {
    return nRanks;
  }

  /** Returns the name of the variable with the number of ranks; empty without a launcher. */
  public Optional<String> sizeVariable() {
    return Optional.ofNullable(sizeVariable);
  }

  /** Returns this rank's number on its host, if the launcher sets it. */
  public OptionalInt localRank() {
    return localRank;
  }

  /** Returns how many ranks run on this host, if the launcher sets it. */
  public OptionalInt localSize() {
    return localSize;
  }

  /** Returns the address at which rank 0 hosts the root, given or derived. */
  public Optional<String> address() {
    return Optional.ofNullable(address);
  }

  /** Returns the id to join by; it has precedence over the address. */
  public Optional<UniqueId> uniqueId() {
    return Optional.ofNullable(uniqueId);
  }

  /** Returns the job's secret, if one is given. */
  public Optional<JobSecret> secret() {
    return Optional.ofNullable(secret);
  }

  /** Returns a text that only this job's ranks have, where the address was derived; else empty. */
  String jobIdentity() {
    return jobIdentity;
  }

  String requireAddress() {
    if (address == null) {
      throw InvalidUsage.of(
          "no address for the root: rank %s of %s was started by %s; set %s=ip:port, an address of"
              + " rank 0's host, on all ranks, and %s",
          rank, nRanks, launcher, ADDRESS, JobSecret.VARIABLE);
    }
    return address;
  }

  @Override
  public String toString() {
    return "RankEnvironment(launcher=%s, rank=%s, nRanks=%s, localRank=%s, address=%s, uniqueId=%s)"
        .formatted(
            launcher,
            rank,
            nRanks,
            localRank.isPresent() ? localRank.getAsInt() : "unknown",
            address,
            uniqueId);
  }

  /** The variables that a launcher sets; the first that is set counts. */
  private record Launcher(
      String name,
      List<String> rank,
      List<String> size,
      List<String> localRank,
      List<String> localSize) {}

  /** Environment variables, read strictly. */
  record Variables(Map<String, String> byName) {
    String text(String name) {
      String value = byName.get(name);
      return value == null || value.isBlank() ? null : value.strip();
    }

    String firstSet(List<String> names) {
      return names.stream().filter(name -> text(name) != null).findFirst().orElse(null);
    }

    OptionalInt optional(List<String> names, int min, int max) {
      String name = firstSet(names);
      return name == null ? OptionalInt.empty() : OptionalInt.of(number(name, min, max));
    }

    int number(String name, int min, int max) {
      String value = text(name);
      try {
        int number = Integer.parseInt(value);
        if (number >= min && number <= max) {
          return number;
        }
      } catch (NumberFormatException e) {
        throw new InvalidUsage(name + "=" + value + " is not a number", e);
      }
      throw InvalidUsage.of("%s=%s is out of range: %s to %s", name, value, min, max);
    }
  }
}
