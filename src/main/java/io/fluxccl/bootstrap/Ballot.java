// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;

/**
 * The vote of one host on the epoch after a roster. All members of that roster on the host share
 * it, so that any live process votes for the suspended and dead ones beside it, and no member votes
 * twice. {@link JoinRules#vote} is its only change. The caller keeps it where the processes of the
 * host can update it atomically.
 *
 * @param promised the highest term that a process of the host has joined or accepted
 * @param accepted the term of the latest accepted proposal
 * @param roster the roster of that proposal
 */
record Ballot(Term promised, Term accepted, @Limits Roster roster) {
  static final Ballot EMPTY = new Ballot(Term.NONE, Term.NONE, Roster.NONE);

  /** Returns a request to promise that no lower term will be accepted. */
  static Ballot promise(Term term) {
    return new Ballot(term, Term.NONE, Roster.NONE);
  }

  /** Returns a request to accept a proposal. */
  static Ballot accept(Term term, Roster roster) {
    return new Ballot(term, term, roster);
  }

  boolean hasRoster() {
    return !roster.isEmpty();
  }
}
