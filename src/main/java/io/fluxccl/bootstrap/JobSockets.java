// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.netty.channel.Channel;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.security.SecureRandom;
import java.util.concurrent.CompletableFuture;

/** The event loop, the sockets and the identity of one process in a job. */
final class JobSockets {
  private static final SecureRandom RANDOM = new SecureRandom();

  final BootstrapOptions options;
  final SessionKey key;
  final SharedEventLoop thread = SharedEventLoop.acquire();
  final EventLoop loop = thread.loop();
  final ChannelGroup channels = new DefaultChannelGroup(loop, true);

  /** Random, so that no other process has it, also if it gets the same address later. */
  final long id = RANDOM.nextLong() | 1;

  // The fields below are set once, on the event loop.

  /** The local address of connections, or null for any. */
  InetAddress from;

  /** The address of this process's own listener. */
  InetSocketAddress address;

  /** Whether this process can answer others. */
  boolean isReady;

  private boolean isReleased;

  JobSockets(SessionKey key, BootstrapOptions options) {
    this.key = key;
    this.options = options;
  }

  /** Gives up the event loop; completes when its thread has ended, if this was its last user. */
  CompletableFuture<Void> release() {
    CompletableFuture<Void> released =
        isReleased ? CompletableFuture.completedFuture(null) : thread.leave();
    isReleased = true;
    return released;
  }

  /**
   * Connects to another process.
   *
   * @param target its id, or 0 for any process
   */
  Handshake.Connector connect(
      LinkKind kind, InetSocketAddress to, long target, Handshake.Outcome outcome) {
    Handshake.Connector connector =
        new Handshake.Connector(key, kind, address, id, target, outcome);
    connector.connect(loop, from, to, channels);
    return connector;
  }

  /**
   * Listens.
   *
   * @param owner listens, for the error
   * @param rank the owner's, or -1
   */
  CompletableFuture<Channel> listen(InetSocketAddress at, Links links, String owner, int rank) {
    return Frames.listen(loop, at, links, channels, owner, rank);
  }
}
