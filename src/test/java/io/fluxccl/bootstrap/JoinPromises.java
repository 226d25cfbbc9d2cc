// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.JoinModel.Process;
import io.fluxccl.bootstrap.JoinModel.Run;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.JoinRules.Electorate;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Joined;
import io.fluxccl.bootstrap.Member.State;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The promises of the join protocol, checked in a simulated world. */
final class JoinPromises {
  /** A broken promise. */
  static final class Violation extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Violation(String message) {
      super(message);
    }
  }

  /** The time in which a group that has lost a rank fails, and its ranks join the next one. */
  static final long NOTICE_NANOS = 5_000_000_000L;

  private final JoinModel world;

  /** For each roster, the one before it, or the coordinator of the first epoch. */
  private final Map<Nonce, Object> parents = new HashMap<>();

  /** For each roster, or coordinator of the first epoch, the groups that were formed after it. */
  private final Map<Object, Set<Roster>> formed = new HashMap<>();

  private final Map<Nonce, Roster> rosters = new HashMap<>();

  /** For each roster, the hosts that have accepted it. */
  private final Map<Nonce, Set<Long>> voters = new HashMap<>();

  JoinPromises(JoinModel world) {
    this.world = world;
  }

  /** Returns the time in which live processes form a group after the last fault. */
  long settleNanos() {
    return JoinRules.LATE_NANOS + 8_000_000_000L + world.replacementTimeout.toNanos();
  }

  // ---- at any time ----

  void proposed(Process from, Propose propose) {
    Roster roster = propose.roster();
    rosters.put(roster.nonce(), roster);
    parents.putIfAbsent(roster.nonce(), roster.epoch() == 1 ? from.address : propose.base());
  }

  void voted(Process voter, Ballot before, Ballot after) {
    if (before.promised().isAfter(after.promised())
        || before.accepted().isAfter(after.accepted())) {
      throw new Violation(voter + " acts on an old term: " + before + " -> " + after);
    }
    Nonce accepted = after.roster().nonce();
    voters.computeIfAbsent(accepted, each -> new HashSet<>()).add(voter.process.self.host());
  }

  void joined(Process member, Joined group) {
    Roster roster = group.roster();
    checkUnique(roster);
    if (roster.rankOf(member.address) != group.rank() || roster.epoch() <= member.lastEpoch) {
      throw new Violation(member + " joined " + roster + " after epoch " + member.lastEpoch);
    }
    if (member.isWrong) {
      throw new Violation(member + " joined with wrong settings");
    }
  }

  /** Fails if two groups form after the same one. */
  void checkUnique(Roster roster) {
    Object parent = parents.get(roster.nonce());
    Set<Roster> groups = formed.computeIfAbsent(parent, each -> new LinkedHashSet<>());
    for (Roster each : groups.contains(roster) ? Set.<Roster>of() : groups) {
      if (!(parent instanceof Nonce base) || hasLiveVoter(rosters.get(base), each)) {
        throw new Violation("two groups after " + parent + ": " + each + " and " + roster);
      }
    }
    groups.add(roster);
  }

  /** Returns whether a member of a roster is alive whose host voted for the group after it. */
  private boolean hasLiveVoter(Roster base, Roster group) {
    Set<Long> hosts = voters.getOrDefault(group.nonce(), Set.of());
    return base.addresses().stream()
        .map(world.byAddress::get)
        .filter(each -> each.run != Run.DEAD && each.missedEpoch <= base.epoch())
        .anyMatch(each -> hosts.contains(each.process.self.host()));
  }

  void checkLimit(Process process) {
    boolean isJoining = process.member.state().ordinal() <= State.ACCEPTED.ordinal();
    long most = world.limit.toNanos() + world.rules.leaseNanos() + 3 * world.rules.intervalNanos();
    if (!process.ended && isJoining && world.now - process.beganNanos > most) {
      throw new Violation(process + " is " + process.member.state() + " for longer than its limit");
    }
  }

  void ended(Process process, Failure failure) {
    if (failure.code() == ErrorCode.INVALID_USAGE && !process.isWrong) {
      throw new Violation(process + " is refused, not a newcomer with other settings: " + failure);
    }
    if (failure.code() == ErrorCode.TIMEOUT && !process.isWrong && couldJoin(process)) {
      throw new Violation(
          process + " formed no group after " + process.member.roster() + ": " + failure);
    }
  }

  // ---- limits ----

  /** Returns whether a process ended by its limit, although the rules allow a group. */
  private boolean couldJoin(Process late) {
    long since = Math.max(world.settledNanos, late.joinedNanos);
    long waited = Math.min(world.limit.toNanos(), world.now - since);
    // A process that has ended meanwhile may have been cut off from some of them.
    List<Process> earlier = runningNear(late, waited);
    boolean isWhole = earlier.stream().allMatch(each -> runningNear(each, waited).equals(earlier));
    if (waited < settleNanos() || !isWhole) {
      return false;
    }
    List<Process> near = runningNear(late, 0);
    return late.member.roster().isEmpty()
        ? findsGroup(late, near, earlier)
        : formsGroup(late, near);
  }

  private List<Process> runningNear(Process one, long window) {
    return world.processes.stream().filter(each -> each.ran(window) && reaches(one, each)).toList();
  }

  private boolean reaches(Process one, Process other) {
    return one == other || !world.isCut(one.machine, other.machine);
  }

  /**
   * Returns whether a newcomer finds a group, or forms the first one.
   *
   * @param earlier those that have run near it while it waited
   */
  private boolean findsGroup(Process newcomer, List<Process> near, List<Process> earlier) {
    boolean exists =
        near.stream()
            .filter(each -> each.lastEpoch >= newcomer.knownEpoch) // no earlier job
            .anyMatch(each -> each.member.state() == State.MEMBER && isFound(newcomer, each));
    long fresh =
        near.stream()
            .filter(each -> !each.isWrong && !each.knowsGroup && each.member.roster().isEmpty())
            .count();
    Process root = world.listeners.get(world.jobAddresses.get(0));
    // One that was in a group whose other members are dead keeps newcomers waiting until it ends.
    boolean isFirst = earlier.stream().allMatch(each -> each.joined.isEmpty());
    return exists || (isFirst && near.contains(root) && root.rank == 0 && fresh >= world.size);
  }

  /** Returns whether a newcomer finds a member of a group, or is called by its group. */
  private boolean isFound(Process newcomer, Process other) {
    boolean hasRoom = other.member.roster().size() < world.size;
    return newcomer.process.entries.contains(other.address)
        || world.jobAddresses.stream().map(world.listeners::get).anyMatch(other::equals)
        || (hasRoom && world.listeners.containsValue(newcomer));
  }

  private boolean formsGroup(Process survivor, List<Process> near) {
    Roster base = survivor.member.roster();
    Set<InetSocketAddress> dead = new HashSet<>();
    List<Contact> present = new ArrayList<>();
    boolean isExpecting = false;
    for (Contact each : base.members()) {
      Process process = world.byAddress.get(each.address());
      if (process.run == Run.DEAD && near.stream().allMatch(one -> reaches(one, process))) {
        dead.add(each.address());
      } else if (near.contains(process) && process.member.roster().equals(base)) {
        present.add(each);
      }
      // A group that shrinks waits for live members until its limit.
      isExpecting |= process.run != Run.DEAD && !near.contains(process) && !process.wasStopped;
    }
    boolean isEnough = world.heals ? present.size() >= world.least : !isExpecting;
    return isEnough && new Electorate(base, dead, Set.of()).count(present).isQuorum();
  }

  // ---- at the end ----

  /** Returns whether nothing more happens: all processes are in groups, or are spares. */
  boolean isQuiet() {
    return world.processes.stream()
        .filter(Process::isRunning)
        .allMatch(each -> each.isSpare() ? !hasRoom(each) : each.isSettled());
  }

  /** Returns whether a group runs that a spare finds, and that is not full. */
  private boolean hasRoom(Process spare) {
    return world.processes.stream()
        .filter(each -> each.isSettled() && isFound(spare, each) && reaches(spare, each))
        .anyMatch(each -> each.member.roster().size() < world.size);
  }

  void checkEnd() {
    for (Process each : world.processes) {
      if (each.isRunning()) {
        checkEnd(each);
      }
    }
  }

  private void checkEnd(Process process) {
    boolean isMember = process.member.state() == State.MEMBER;
    for (Process each : isMember ? process.missing() : List.<Process>of()) {
      if (process.missesNanos(each) > NOTICE_NANOS) {
        throw new Violation(
            process + " is in " + process.member.roster() + " without " + each + " " + each.run);
      }
    }
    if (process.member.state() == State.IDLE && process.missesNanos(process) > NOTICE_NANOS) {
      throw new Violation(process + " is idle at the end");
    }
    boolean isWhole = world.cuts.isEmpty();
    if (isWhole && process.isSpare() && hasRoom(process)) {
      throw new Violation(process + " is not admitted to a group that is not full");
    }
    if (isWhole && isMember && world.now - process.groupNanos < NOTICE_NANOS) {
      throw new Violation(process + " still changes its group at the end");
    }
  }
}
