// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.Mailboxes.WaitingBytes;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * The messages of one process's groups: those of the current group go to its bootstrap, those of
 * past groups are dropped, and those of the next group wait until it begins here. Only on the event
 * loop.
 */
final class GroupMessages {
  private static final int MAX_PAST_GROUPS = 16;

  private final Links links;
  private final Set<Nonce> past = new LinkedHashSet<>();
  private final List<Early> early = new ArrayList<>();
  private long earlyBytes;
  private TcpBootstrap group; // null before the first one

  /** A message of a group that has not begun here. */
  private record Early(InetSocketAddress from, Data data) {}

  GroupMessages(Links links) {
    this.links = links;
  }

  /** Returns the current or last group; null before the first one. */
  TcpBootstrap group() {
    return group;
  }

  /** Returns the id of the process that listens at an address, or 0 if it is unknown. */
  long idOf(InetSocketAddress address) {
    int rank = rankOf(address);
    return rank == Roster.NEWCOMER ? 0 : group.roster().members().get(rank).id();
  }

  private int rankOf(InetSocketAddress address) {
    return group == null ? Roster.NEWCOMER : group.roster().rankOf(address);
  }

  void begin(TcpBootstrap next, Roster roster) {
    if (roster.epoch() > 1) {
      links.forgetAllBut(new HashSet<>(roster.addresses()));
    }
    group = next;
    group.begin(roster);
    List<Early> arrived = List.copyOf(early);
    early.clear();
    earlyBytes = 0;
    arrived.stream()
        .filter(each -> each.data.roster().equals(roster.nonce()))
        .forEach(each -> received(each.from, each.data));
  }

  /** The current group has failed. */
  void end(FluxCclException reason) {
    links.failQueues(reason);
    if (group != null) {
      past.add(group.roster().nonce());
      if (past.size() > MAX_PAST_GROUPS) {
        past.remove(past.iterator().next());
      }
      group.fail(reason);
    }
  }

  /** Handles a message. Returns false if too many messages arrive for a group to come. */
  boolean received(InetSocketAddress peer, Data data) {
    if (past.contains(data.roster())) {
      return true;
    }
    if (group != null && group.roster().nonce().equals(data.roster())) {
      group.received(rankOf(peer), data);
      return true;
    }
    earlyBytes += WaitingBytes.of(data.message());
    boolean hasRoom = earlyBytes <= WaitingBytes.LIMIT;
    if (hasRoom) {
      early.add(new Early(peer, data));
    }
    return hasRoom;
  }

  /** A process's link is over. */
  void linkEnded(InetSocketAddress peer) {
    int rank = rankOf(peer);
    if (rank != Roster.NEWCOMER) {
      group.streamMayHaveEnded(rank);
    }
  }

  /** A link can't be used any more, though its process lives. */
  void violated(InetSocketAddress peer, String problem) {
    int rank = rankOf(peer);
    if (rank != Roster.NEWCOMER) {
      String text = "the connection with rank %s is unusable: %s";
      group.fail(TransportFailure.of(rank, text, rank, problem));
    }
  }
}
