// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.OpenFiles;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.fluxccl.concurrent.RecurringWarning;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Decides which connectors a listener admits. Only on the event loop. */
abstract class Gate {
  private static final Logger LOG = LoggerFactory.getLogger(Gate.class);
  private static final RecurringWarning STRANGERS = new RecurringWarning(LOG);

  /**
   * Separate from {@link #STRANGERS}, so that a flood of those does not hide why a rank can't join.
   */
  private static final RecurringWarning MISMATCHES = new RecurringWarning(LOG);

  /** The sockets that are not authenticated yet, the oldest first. */
  private final Set<ChannelHandlerContext> unproven = new LinkedHashSet<>();

  /** Returns the key of the connections; handshakes wait until it is known. */
  abstract CompletableFuture<SessionKey> key();

  /** Decides whether to admit an authenticated connector as a rank of the job. */
  abstract Admission judge(Proof proof);

  /** Returns the job's number of ranks, for the verdict. */
  abstract int expectedRanks();

  /**
   * Returns the answer to a dump request; by default, that no rank is known. Must not wait for user
   * code.
   *
   * @param all whether with all calls that are kept
   */
  BootstrapFrame answer(boolean all) {
    return new Waiting(List.of());
  }

  /** Decides whether to admit an authenticated connector. Dump requests are always admitted. */
  final Admission decide(Proof proof) {
    return proof.kind() == LinkKind.INQUIRY ? Admission.WELCOME : judge(proof);
  }

  final void admit(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    if (proof.kind() == LinkKind.INQUIRY) {
      DumpClient.answer(channel, acceptor, this);
    } else {
      admitted(channel, acceptor, proof);
    }
  }

  /** Replaces {@code acceptor} by a session. */
  abstract void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof);

  /**
   * Adds a socket that is not authenticated yet.
   *
   * @return the socket to close because there are too many, or null. A rank authenticates within a
   *     round trip, so the oldest socket is the least likely to be a rank's
   */
  final ChannelHandlerContext begins(ChannelHandlerContext socket) {
    ChannelHandlerContext oldest = null;
    if (unproven.size() >= OpenFiles.pendingSockets()) {
      Iterator<ChannelHandlerContext> sockets = unproven.iterator();
      oldest = sockets.next();
      sockets.remove();
    }
    unproven.add(socket);
    return oldest;
  }

  /** Closes a socket, and logs why. */
  static void refuse(ChannelHandlerContext socket, String why, boolean isMismatch) {
    if (socket.channel().isOpen()) {
      RecurringWarning warning = isMismatch ? MISMATCHES : STRANGERS;
      warning.warn("closed a connection from " + socket.channel().remoteAddress() + ": " + why);
      socket.close();
    }
  }

  /**
   * Called if no connection can be accepted, because this process has no file descriptor for it.
   */
  void ranOut(String why) {}

  /** Removes a socket that is authenticated or closed. */
  final void ends(ChannelHandlerContext socket) {
    unproven.remove(socket);
  }
}
