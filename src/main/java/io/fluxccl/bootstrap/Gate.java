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

  /** Apart from strangers, so that a flood of these does not hide why a rank can't join. */
  private static final RecurringWarning MISMATCHES = new RecurringWarning(LOG);

  /** The sockets that have not proved themselves, the oldest first. */
  private final Set<ChannelHandlerContext> unproven = new LinkedHashSet<>();

  /** The key of the connections; a handshake waits while it is not known. */
  abstract CompletableFuture<SessionKey> key();

  /** Decides on a connector that wants to be one of the job's ranks and knows the secret. */
  abstract Admission judge(Proof proof);

  /** How many ranks the job has, for the verdict. */
  abstract int expectedRanks();

  /**
   * Returns the answer to somebody who asks what the job does; here, that no rank is known. Must
   * not wait for user code.
   *
   * @param all whether with all calls that are kept
   */
  BootstrapFrame answer(boolean all) {
    return new Waiting(List.of());
  }

  /** Decides on a connector that knows the secret; whoever only asks is welcome. */
  final Admission decide(Proof proof) {
    return proof.kind() == LinkKind.INQUIRY ? Admission.WELCOME : judge(proof);
  }

  final void admit(Channel channel, Handshake.Acceptor acceptor, Proof proof) {
    if (proof.kind() == LinkKind.INQUIRY) {
      Inquiry.answer(channel, acceptor, this);
    } else {
      admitted(channel, acceptor, proof);
    }
  }

  /** Puts a session in the place of {@code acceptor}. */
  abstract void admitted(Channel channel, Handshake.Acceptor acceptor, Proof proof);

  /**
   * Learns of a socket that has to prove itself.
   *
   * @return the socket to close because there are too many, or null. A rank proves itself within a
   *     round trip, so the oldest is the least likely to be one
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

  /** Learns that no connection can be accepted, because this process has no descriptor for it. */
  void ranOut(String why) {}

  /** Learns that a socket has proved itself, or is closed. */
  final void ends(ChannelHandlerContext socket) {
    unproven.remove(socket);
  }
}
