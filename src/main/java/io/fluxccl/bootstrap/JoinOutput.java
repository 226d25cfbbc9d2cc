// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.JoinMessage.Failure;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.List;

/** The actions that a {@link Member} or a {@link Coordinator} requests of its caller. */
sealed interface JoinOutput {
  /**
   * Send a message, in order for each receiver; the receiver may be this process. If the receiver's
   * port refuses the connection, the caller reports that.
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
