// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Departures;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.NewcomersWait;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Silent;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/**
 * A member's part in a group: heartbeats, silent ranks, departures, and processes that wait for the
 * next group. The lowest rank that has not left is the watcher. It exchanges heartbeats with all
 * ranks, and the others with it.
 */
final class GroupWatch {
  private final LocalProcess process;
  private final Roster roster;
  private final int fullSize;
  private final Map<InetSocketAddress, Join> standby = new LinkedHashMap<>();
  private InetSocketAddress watcher;
  private List<Integer> silent = List.of();
  private boolean reportedNewcomers;

  /**
   * @param fullSize the number of ranks up to which newcomers may join later; 0 for none
   */
  GroupWatch(LocalProcess process, Roster roster, int fullSize) {
    this.process = process;
    this.roster = roster;
    this.fullSize = fullSize;
    this.watcher = findWatcher();
  }

  /** Joins that no coordinator has handled: of spares, or of members that failed earlier. */
  Map<InetSocketAddress, Join> standby() {
    return standby;
  }

  InetSocketAddress watcher() {
    return watcher;
  }

  private InetSocketAddress findWatcher() {
    return roster.members().stream()
        .map(Contact::address)
        .filter(each -> !process.left.contains(each))
        .findFirst()
        .orElse(process.self.address());
  }

  /** Returns the other members, except dead and departed ones. */
  List<InetSocketAddress> others() {
    return roster.addresses().stream()
        .filter(each -> !process.is(each) && !process.hasEnded(each))
        .toList();
  }

  /**
   * Answers a process that waits for the next group, or refuses it. A group without newcomers has
   * no answer, because an earlier run may still hold the port of the newcomer's job; but it refuses
   * a process that has taken part in a join, because the group may have formed without it.
   */
  void admit(InetSocketAddress from, Join newcomer, JoinRequest own) {
    if (fullSize == 0) {
      if (newcomer.term().epoch() > 0) {
        Failure missed = newcomer.request().missed(roster.epoch(), Roster.NEWCOMER);
        process.send(from, new Rejected(missed));
      }
      return;
    }
    Optional<Failure> refusal = own.refusal(newcomer.request());
    if (refusal.isPresent()) {
      process.send(from, new Rejected(refusal.get()));
    } else if (process.is(watcher())) {
      standby.put(from, newcomer);
      process.send(from, standbyNotice());
    } else {
      process.send(from, new Redirect(roster.term(), watcher()));
    }
  }

  private Waiting standbyNotice() {
    Term next = new Term(roster.epoch() + 1, 0, roster.rankOf(process.self.address()));
    return new Waiting(next, roster.nonce(), true, List.of(), roster.entries(), "");
  }

  /** Sends the heartbeats of an interval. Returns the failure of a rank that is silent too long. */
  Optional<Failure> beat(long now) {
    boolean isWatcher = process.is(watcher());
    List<InetSocketAddress> watched = isWatcher ? others() : List.of(watcher());
    Set<Integer> found = new TreeSet<>();
    found.addAll(isWatcher ? List.of() : silent);
    watched.stream()
        .filter(each -> process.isSilent(each, now))
        .forEach(each -> found.add(roster.rankOf(each)));
    boolean hasRoom = isWatcher && roster.size() < fullSize;
    if (isWatcher) {
      standby.keySet().removeIf(each -> process.isSilent(each, now));
      Set<InetSocketAddress> notified = new LinkedHashSet<>(standby.keySet());
      notified.addAll(hasRoom ? process.jobAddresses : Set.of());
      notified.forEach(each -> process.send(each, standbyNotice()));
    }
    boolean newcomers = hasRoom && !standby.isEmpty();
    report(List.copyOf(found), newcomers);
    Beat beat =
        isWatcher
            ? new Beat(roster.epoch(), roster.nonce(), silent, left(), newcomers)
            : Beat.of(roster);
    watched.forEach(each -> process.send(each, beat));
    long liveness = process.rules.livenessNanos();
    return watched.stream()
        .filter(each -> liveness > 0 && process.silentNanos(each, now) > liveness)
        .findFirst()
        .map(each -> silence(roster.rankOf(each), liveness / 1_000_000));
  }

  private List<Integer> left() {
    return process.left.stream().map(roster::rankOf).filter(each -> each >= 0).sorted().toList();
  }

  private static Failure silence(int rank, long millis) {
    String text = "rank %s has answered no heartbeat for %s ms; continue or end its process";
    return new Failure(ErrorCode.TIMEOUT, rank, Text.of(text, rank, millis));
  }

  Failure deathOf(InetSocketAddress peer) {
    int rank = roster.rankOf(peer);
    String text = "rank %s (%s) of generation %s has died; replace it, or continue without it";
    String description = roster.members().get(rank).process();
    return new Failure(
        ErrorCode.REMOTE_FAILURE, rank, Text.of(text, rank, description, roster.epoch()));
  }

  void received(InetSocketAddress from, Beat beat, long now) {
    if (from.equals(watcher())) {
      report(beat.silent(), beat.newcomers());
      departed(new Departed(roster.nonce(), beat.left()), now); // an earlier notice may be lost
    }
  }

  private void report(List<Integer> ranks, boolean newcomers) {
    if (!ranks.equals(silent)) {
      silent = ranks;
      process.output(new Silent(ranks));
    }
    if (newcomers && !reportedNewcomers) {
      reportedNewcomers = true;
      process.output(new NewcomersWait());
    }
  }

  /** Announces that this process leaves. */
  void leave() {
    announce(List.of(roster.rankOf(process.self.address())));
  }

  private void announce(List<Integer> ranks) {
    Departed departed = new Departed(roster.nonce(), ranks);
    List<InetSocketAddress> notified = process.is(watcher()) ? others() : List.of(watcher());
    notified.forEach(each -> process.send(each, departed));
  }

  /** Records departures. Returns those that were not known before. */
  List<InetSocketAddress> departed(Departed departed, long now) {
    InetSocketAddress before = watcher;
    List<InetSocketAddress> news = new ArrayList<>();
    for (int rank : departed.ranks()) {
      InetSocketAddress peer = roster.address(Math.min(rank, roster.size() - 1));
      if (rank < roster.size() && !process.is(peer) && process.left.add(peer)) {
        news.add(peer);
      }
    }
    if (news.isEmpty()) {
      return news;
    }
    process.output(new Departures(news.stream().map(roster::rankOf).toList()));
    watcher = findWatcher();
    if (process.is(before)) {
      announce(departed.ranks());
    } else if (news.contains(before)) {
      others().forEach(each -> process.heard(each, now)); // the silence of another watcher begins
    }
    return news;
  }
}
