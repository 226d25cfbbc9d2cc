// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/**
 * The rank and the group that a process requests when it joins, and its settings.
 *
 * @param rank the requested rank
 * @param size the ranks of a full generation
 * @param least the fewest ranks of a generation after the first
 * @param replacementTimeout how long a smaller generation waits for replacements
 * @param limit how long this process waits for the group to form
 * @param settings the settings that must be equal on all ranks: wire version, TLS, options that
 *     change the protocol
 */
record JoinRequest(
    Kind kind,
    @Limits(least = FluxCclException.NO_RANK, most = BootstrapFrameCodec.LAST_RANK) int rank,
    @Limits(least = 1, most = BootstrapFrameCodec.MAX_RANKS) int size,
    @Limits(least = 1, most = BootstrapFrameCodec.MAX_RANKS) int least,
    Duration replacementTimeout,
    Duration limit,
    Map<String, String> settings) {
  /** The purpose of a join. */
  enum Kind {
    /** A group of given ranks that forms once. A process has no place in it but its own rank's. */
    FIXED,
    /** A generation: processes without a rank wait as spares. */
    HEALING,
    /** The live ranks of a failed group, without newcomers. */
    SHRINKING
  }

  /** Returns the failure of a newcomer that differs from a process of the job, if it does. */
  Optional<Failure> refusal(JoinRequest newcomer) {
    if (newcomer.kind != kind && kind != Kind.HEALING) {
      String text = "%s: the group has formed, and admits no newcomers; start the job again";
      return Optional.of(new Failure(ErrorCode.ABORTED, newcomer.rank, Text.of(text, newcomer)));
    }
    if (newcomer.kind != kind) {
      return refusal(newcomer, "kind", newcomer.kind, kind);
    }
    if (newcomer.size != size) {
      return refusal(newcomer, "nRanks", newcomer.size, size);
    }
    TreeSet<String> names = new TreeSet<>(settings.keySet());
    names.addAll(newcomer.settings.keySet());
    for (String name : names) {
      String theirs = newcomer.settings.getOrDefault(name, "unset");
      String ours = settings.getOrDefault(name, "unset");
      if (!theirs.equals(ours)) {
        return refusal(newcomer, name, theirs, ours);
      }
    }
    return Optional.empty();
  }

  private static Optional<Failure> refusal(
      JoinRequest newcomer, String name, Object theirs, Object ours) {
    String text =
        Text.of(
            "%s: %s=%s, but the job has %s=%s; start this process with the job's value",
            newcomer, name, theirs, name, ours);
    return Optional.of(new Failure(ErrorCode.INVALID_USAGE, newcomer.rank, text));
  }

  /**
   * Returns the failure of a join whose limit has passed.
   *
   * @param coordinator the rank of the coordinator that this process followed
   * @param asked the addresses that this process asked
   * @param answer the coordinator's last answer
   */
  Failure timeout(
      long epoch, int coordinator, Set<InetSocketAddress> asked, JoinMessage.Waiting answer) {
    List<Integer> missing = answer.missing();
    String reason =
        missing.isEmpty()
            ? Text.of("no coordinator answers at %s", asked)
            : Text.of("ranks %s did not join", missing);
    String remedy =
        answer.note().isEmpty()
            ? "start them with the job's address and secret, or end their suspended processes"
            : answer.note();
    int attributed = missing.isEmpty() ? coordinator : missing.get(0);
    String text = "%s: generation %s did not form within %s ms: %s; %s";
    return new Failure(
        ErrorCode.TIMEOUT,
        attributed,
        Text.of(text, this, epoch, limit.toMillis(), reason, remedy));
  }

  /** Returns the failure of a process without which an epoch has formed. */
  Failure missed(long epoch, int previousRank) {
    String text =
        "%s: generation %s formed without this process, which was suspended or cut off; start the"
            + " job again to include it";
    return new Failure(ErrorCode.ABORTED, previousRank, Text.of(text, this, epoch));
  }

  /** Returns the failure of a first join whose coordinator has ended. */
  Failure rootDeath() {
    String text = "%s: the process that forms the group has left or died; start the job again";
    return new Failure(ErrorCode.REMOTE_FAILURE, 0, Text.of(text, this));
  }

  /** Names the rank and its call, for messages. */
  @Override
  public String toString() {
    String call = kind == Kind.FIXED ? "join" : kind == Kind.HEALING ? "generations" : "shrink";
    return Text.of("rank %s of %s: %s", rank, size, call);
  }
}
