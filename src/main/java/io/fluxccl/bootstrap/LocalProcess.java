// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Missed;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Send;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * This process, as its {@link Member} and {@link Coordinator} share it: what it knows of the other
 * processes, and the actions for the caller. A process is silent only if it was asked or watched
 * before.
 */
final class LocalProcess {
  final Contact self;
  final JoinRules rules;

  /** Returns a new random number at each call. */
  final Supplier<Nonce> nonces;

  /** The addresses at which newcomers ask for the job; any process may listen there. */
  final Set<InetSocketAddress> jobAddresses = new LinkedHashSet<>();

  /** The addresses of processes that may be members of the job, for example from job files. */
  final Set<InetSocketAddress> entries = new LinkedHashSet<>();

  /** The processes whose port refuses connections. */
  final Set<InetSocketAddress> dead = new HashSet<>();

  /** The processes that have left in good order. */
  final Set<InetSocketAddress> left = new HashSet<>();

  /** The processes that have given up their place in the last epoch, and join as newcomers. */
  final Set<InetSocketAddress> renounced = new HashSet<>();

  private final Map<InetSocketAddress, Long> heardNanos = new HashMap<>();
  private final List<JoinOutput> outputs = new ArrayList<>();

  LocalProcess(Contact self, JoinRules rules, Supplier<Nonce> nonces) {
    this.self = self;
    this.rules = rules;
    this.nonces = nonces;
  }

  boolean is(InetSocketAddress address) {
    return self.address().equals(address);
  }

  void output(JoinOutput output) {
    outputs.add(output);
  }

  void send(InetSocketAddress to, JoinMessage message) {
    outputs.add(new Send(to, message));
  }

  /** Returns the actions since the last call. */
  List<JoinOutput> drain() {
    List<JoinOutput> drained = List.copyOf(outputs);
    outputs.clear();
    return drained;
  }

  /**
   * Returns whether no process of this host can still vote on the group after a base: none is
   * suspended in it.
   */
  boolean isOver(Roster base, Roster current) {
    return base.members().stream()
        .filter(each -> each.host() == self.host())
        .map(Contact::address)
        .allMatch(each -> current.lists(each) || hasEnded(each));
  }

  /** Forgets processes that are in none of the latest groups: another one may get their port. */
  void forgetAllBut(Set<InetSocketAddress> members) {
    dead.retainAll(members);
    left.retainAll(members);
    entries.clear();
    watchOnly(members);
  }

  /** Returns the news for a process without which a group has formed. This process is alive. */
  Missed missed(Roster roster) {
    Stream<InetSocketAddress> others =
        roster.addresses().stream().filter(each -> !is(each) && !hasEnded(each));
    List<InetSocketAddress> members =
        Stream.concat(Stream.of(self.address()), others).limit(Roster.MAX_ENTRIES).toList();
    return new Missed(roster.epoch(), members);
  }

  boolean hasEnded(InetSocketAddress peer) {
    return dead.contains(peer) || left.contains(peer);
  }

  /** Returns whether a process takes no part in the next epoch as a member of the last one. */
  boolean isOut(InetSocketAddress member) {
    return hasEnded(member) || renounced.contains(member);
  }

  /** Records a message of a process. */
  void heard(InetSocketAddress peer, long now) {
    heardNanos.put(peer, now);
  }

  /**
   * Records when the last bytes of a watched process arrived, also those of an incomplete message.
   */
  void refresh(InetSocketAddress peer, long nanos) {
    heardNanos.computeIfPresent(peer, (at, heard) -> Math.max(heard, nanos));
  }

  /** Begins to watch a process that was not watched before. */
  void asked(InetSocketAddress peer, long now) {
    heardNanos.putIfAbsent(peer, now);
  }

  /** Stops watching all other processes: they have no reason to send. */
  void watchOnly(Collection<InetSocketAddress> peers) {
    heardNanos.keySet().retainAll(peers);
  }

  long silentNanos(InetSocketAddress peer, long now) {
    return is(peer) ? 0 : now - heardNanos.getOrDefault(peer, now);
  }

  boolean isSilent(InetSocketAddress peer, long now) {
    return rules.isSilent(silentNanos(peer, now));
  }

  /**
   * Takes the time by which this process is late from the silence of others, because their messages
   * may wait in its sockets.
   */
  void delayed(long nanos, long now) {
    heardNanos.replaceAll((peer, heard) -> Math.min(now, heard + nanos));
  }

  /** Restarts the silence of processes that were not silent before this process was suspended. */
  void excuse(long before, long now) {
    heardNanos.replaceAll((peer, heard) -> rules.isSilent(before - heard) ? heard : (Long) now);
  }

  /** The actions that a {@link Member} or a {@link Coordinator} requests of its caller. */
  sealed interface JoinOutput {
    /**
     * Send a message, in order for each receiver; the receiver may be this process. If the
     * receiver's port refuses the connection, the caller reports that.
     */
    record Send(InetSocketAddress to, JoinMessage message) implements JoinOutput {}

    /** Update the ballot of this host by {@link JoinRules#vote} and report the result, in order. */
    record CastVote(Nonce base, Ballot request) implements JoinOutput {}

    /** Begin the group of a roster, with this rank. */
    record Joined(Roster roster, int rank) implements JoinOutput {}

    /** End the group; the next {@code join} call continues with its roster. */
    record GroupFailed(Failure failure) implements JoinOutput {}

    /** Fail the join call. The machine sends nothing more. */
    record Ended(Failure failure) implements JoinOutput {}

    /** Report the silent ranks of the group. */
    record Silent(List<Integer> ranks) implements JoinOutput {}

    /** Report ranks of the group that have left in good order. */
    record Departures(List<Integer> ranks) implements JoinOutput {}

    /** Report, once a group, that processes wait for free ranks of it. */
    record NewcomersWait() implements JoinOutput {}
  }
}
