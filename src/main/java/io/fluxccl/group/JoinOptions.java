// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Tuning;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * How a process joins a job. Immutable; {@code with…} methods give a changed copy. Options that
 * code does not set are read from the environment.
 *
 * <pre>{@code
 * JoinOptions options =
 *     JoinOptions.of(rank, 4)
 *         .withAddress("10.0.0.1:29500")
 *         .withSecret(secret)
 *         .withName("chat")
 *         .withTimeout(Duration.ofSeconds(2));
 * }</pre>
 *
 * @param place rank, number of ranks, and the job's address or unique id
 * @param name of the job, which errors, log lines and threads show; empty for none
 * @param joinTimeout how long joining may take: finding the other ranks, opening the device,
 *     connecting the collectives
 * @param insecure whether to allow addresses that other hosts can reach without a secret
 * @param device of this rank; every rank must choose the same kind
 * @param collectives how {@link RankGroup#collectives} work, the time limit of each operation among
 *     them. A tag of 0 stands for a tag of the group's own; without a set-up limit, that of
 *     registrations and lanes is {@code joinTimeout}
 * @param leastRanks the fewest ranks with which {@link RankGroup#generations} continue after a
 *     failure; 0: all ranks, so that each dead rank must be replaced
 * @param replacementTimeout how long a smaller generation waits for replacements
 * @param livenessTimeout how long a rank may answer no heartbeat, because it is stopped or can't be
 *     reached, before the job fails; zero for no limit
 */
public record JoinOptions(
    RankEnvironment place,
    String name,
    Duration joinTimeout,
    boolean insecure,
    DeviceChoice device,
    CollectivesOptions collectives,
    int leastRanks,
    Duration replacementTimeout,
    Duration livenessTimeout) {
  private static final int MAX_NAME_LENGTH = 64;
  private static final String WHERE = "JoinOptions";

  /** Refuses a join limit that is not positive, a name of odd characters, and missing values. */
  public JoinOptions {
    InvalidUsage.requireNonNull(place, WHERE, "place");
    InvalidUsage.requireNonNull(name, WHERE, "name");
    InvalidUsage.requireNonNull(joinTimeout, WHERE, "joinTimeout");
    InvalidUsage.requireNonNull(device, WHERE, "device");
    InvalidUsage.requireNonNull(collectives, WHERE, "collectives");
    InvalidUsage.requireNonNull(replacementTimeout, WHERE, "replacementTimeout");
    InvalidUsage.requireNonNull(livenessTimeout, WHERE, "livenessTimeout");
    if (joinTimeout.isNegative() || joinTimeout.isZero()) {
      throw InvalidUsage.of("joinTimeout=%s; give more than zero", joinTimeout);
    }
    if (leastRanks < 0 || leastRanks > place.nRanks()) {
      throw InvalidUsage.of(
          "leastRanks=%s; give 0 for all, or up to nRanks=%s", leastRanks, place.nRanks());
    }
    if (replacementTimeout.isNegative()) {
      throw InvalidUsage.of("replacementTimeout=%s; give zero or more", replacementTimeout);
    }
    if (livenessTimeout.isNegative()) {
      throw InvalidUsage.of("livenessTimeout=%s; give zero or more", livenessTimeout);
    }
    if (!name.matches("[A-Za-z0-9._-]{0," + MAX_NAME_LENGTH + "}")) {
      throw InvalidUsage.of(
          "name=%s; give up to %s letters, digits, dots, dashes and underscores",
          name, MAX_NAME_LENGTH);
    }
  }

  /**
   * Reads all options from the environment: those of the launcher, or FLUXCCL_RANK and its kin.
   *
   * @throws InvalidUsage naming the variable that makes no sense
   */
  public static JoinOptions fromEnvironment() {
    return of(RankEnvironment.fromEnvironment(), Settings.ofProcess());
  }

  /**
   * Returns options for a rank that code chooses. A job of several ranks needs {@link #withAddress}
   * or {@link #withUniqueId} as well. Variables that name a rank or an address are not read; the
   * others are.
   *
   * @param rank 0 to {@code nRanks - 1}
   * @param nRanks how many ranks the job has
   * @throws InvalidUsage if the rank is out of range, or a variable makes no sense
   */
  public static JoinOptions of(int rank, int nRanks) {
    return of(RankEnvironment.of(rank, nRanks), Settings.ofProcess());
  }

  static JoinOptions of(RankEnvironment place, Settings settings) {
    settings.check();
    CollectivesOptions defaults = CollectivesOptions.DEFAULT;
    CollectivesOptions calls =
        settings
            .word("FLUXCCL_NETWORK", text -> defaults.withNetworks(TransportFlags.parse(text)))
            .orElse(defaults)
            .withChecks(settings.flag("FLUXCCL_CHECKS"))
            .withChecksums(settings.flag("FLUXCCL_CHECKSUM"));
    calls = settings.file("FLUXCCL_TUNING").map(calls::withTuning).orElse(calls);
    calls = settings.seconds("FLUXCCL_TIMEOUT", calls::withTimeout).orElse(calls);
    JoinOptions options =
        new JoinOptions(
            place,
            "",
            Deadline.DEFAULT_TIMEOUT,
            settings.flag(BootstrapOptions.INSECURE_VARIABLE),
            DeviceChoice.from(settings),
            calls,
            0,
            Duration.ZERO,
            Duration.ZERO);
    options = settings.word("FLUXCCL_NAME", options::withName).orElse(options);
    options = settings.seconds("FLUXCCL_JOIN_TIMEOUT", options::withJoinTimeout).orElse(options);
    options = settings.number("FLUXCCL_LEAST_RANKS", options::withLeastRanks).orElse(options);
    for (String name : List.of("FLUXCCL_PATIENCE", "FLUXCCL_REPLACEMENT_TIMEOUT")) {
      options = settings.seconds(name, options::withReplacementTimeout).orElse(options);
    }
    return settings
        .seconds("FLUXCCL_LIVENESS_TIMEOUT", options::withLivenessTimeout)
        .orElse(options);
  }

  /**
   * Returns these options with the job's address, the same on every rank.
   *
   * @param address {@code ip:port} or {@code interface:ip:port} of rank 0's host; after it, and
   *     commas, further ones at which replacements of {@link RankGroup#generations} find the job
   * @throws InvalidUsage if it has another form
   */
  public JoinOptions withAddress(String address) {
    return withPlace(place.withAddress(address));
  }

  /** Returns these options with the id that one process created and gave to all. */
  public JoinOptions withUniqueId(UniqueId id) {
    return withPlace(place.withUniqueId(id));
  }

  /** Returns these options with the job's secret, the same on every rank. */
  public JoinOptions withSecret(JobSecret secret) {
    return withPlace(place.withSecret(secret));
  }

  /** Returns these options with another name of the job. */
  public JoinOptions withName(String newName) {
    return changed(copy -> copy.name = newName);
  }

  /** Returns these options with another limit for joining. */
  public JoinOptions withJoinTimeout(Duration limit) {
    return changed(copy -> copy.joinTimeout = limit);
  }

  /** Returns these options with another limit for each operation of the collectives. */
  public JoinOptions withTimeout(Duration limit) {
    return withCollectives(collectives.withTimeout(limit));
  }

  /** Returns these options with or without permission to use open addresses without a secret. */
  public JoinOptions withInsecure(boolean allowed) {
    return changed(copy -> copy.insecure = allowed);
  }

  /** Returns these options with another device. */
  public JoinOptions withDevice(DeviceChoice newDevice) {
    return changed(copy -> copy.device = newDevice);
  }

  /** Returns these options with other options of collectives. */
  public JoinOptions withCollectives(CollectivesOptions newCollectives) {
    return changed(copy -> copy.collectives = newCollectives);
  }

  /**
   * Returns these options with the fewest ranks with which generations continue after a failure.
   *
   * @param count 0 for all
   */
  public JoinOptions withLeastRanks(int count) {
    return changed(copy -> copy.leastRanks = count);
  }

  /** Returns these options with the time that a smaller generation waits for replacements. */
  public JoinOptions withReplacementTimeout(Duration limit) {
    return changed(copy -> copy.replacementTimeout = limit);
  }

  /**
   * Returns {@link #replacementTimeout}.
   *
   * @deprecated Use {@link #replacementTimeout}.
   */
  @Deprecated
  public Duration patience() {
    return replacementTimeout;
  }

  /**
   * Returns {@link #withReplacementTimeout} of the limit.
   *
   * @deprecated Use {@link #withReplacementTimeout}.
   */
  @Deprecated
  public JoinOptions withPatience(Duration limit) {
    return withReplacementTimeout(limit);
  }

  /** Returns these options with the time that a rank may be silent; zero for no limit. */
  public JoinOptions withLivenessTimeout(Duration limit) {
    return changed(copy -> copy.livenessTimeout = limit);
  }

  private JoinOptions withPlace(RankEnvironment newPlace) {
    return changed(copy -> copy.place = newPlace);
  }

  private JoinOptions changed(Consumer<Copy> change) {
    Copy copy = new Copy(this);
    change.accept(copy);
    return copy.options();
  }

  /** The options of a record while one of them is changed. */
  private static final class Copy {
    private RankEnvironment place;
    private String name;
    private Duration joinTimeout;
    private boolean insecure;
    private DeviceChoice device;
    private CollectivesOptions collectives;
    private int leastRanks;
    private Duration replacementTimeout;
    private Duration livenessTimeout;

    Copy(JoinOptions of) {
      place = of.place;
      name = of.name;
      joinTimeout = of.joinTimeout;
      insecure = of.insecure;
      device = of.device;
      collectives = of.collectives;
      leastRanks = of.leastRanks;
      replacementTimeout = of.replacementTimeout;
      livenessTimeout = of.livenessTimeout;
    }

    JoinOptions options() {
      return new JoinOptions(
          place,
          name,
          joinTimeout,
          insecure,
          device,
          collectives,
          leastRanks,
          replacementTimeout,
          livenessTimeout);
    }
  }

  BootstrapOptions bootstrapOptions() {
    BootstrapOptions.Builder builder =
        BootstrapOptions.builder()
            .timeout(joinTimeout)
            .insecure(insecure)
            .name(name)
            .livenessTimeout(livenessTimeout)
            .settings(settings());
    place.secret().ifPresent(builder::secret);
    return builder.build();
  }

  /** Returns the options that must be equal on all ranks, by variable or option. */
  Map<String, String> settings() {
    Map<String, String> settings = new TreeMap<>();
    settings.put("FLUXCCL_CHECKS", collectives.checked() ? "1" : "0");
    settings.put("FLUXCCL_DEVICE", device.isHost() ? "host" : "cuda");
    settings.put("FLUXCCL_TUNING", collectives.tuning().map(JoinOptions::describe).orElse("none"));
    settings.put("transport", collectives.transport().map(Transport::name).orElse("any"));
    settings.put("tag", Integer.toString(collectives.tag()));
    settings.put("maxBlocks", Integer.toString(collectives.maxBlocks()));
    settings.put("preferCopyEngines", Boolean.toString(collectives.preferCopyEngines()));
    settings.put("reproducible", Boolean.toString(collectives.reproducible()));
    collectives.algorithms().forEach((call, name) -> settings.put("algorithm of " + call, name));
    return settings;
  }

  /** Returns a hash of a tuning file, or the reason why it can't be read. */
  private static String describe(Path tuning) {
    try {
      return Tuning.read(tuning).fingerprint();
    } catch (InvalidUsage e) {
      return e.getMessage().substring(0, Math.min(e.getMessage().length(), MAX_NAME_LENGTH));
    }
  }

  /** Returns the options of the collectives, with what the caller left to the group. */
  CollectivesOptions collectivesWithTag(int tag) {
    CollectivesOptions own = collectives.tag() == 0 ? collectives.withTag(tag) : collectives;
    return own.setupTimeout().isPresent() ? own : own.withSetupTimeout(joinTimeout);
  }

  /** Returns the limit of a set-up of the communicator. */
  Duration setupTimeout() {
    return collectives.setupTimeout().orElse(joinTimeout);
  }
}
