// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.netty.channel.Channel;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/**
 * The event loop, the sockets and the identity of one process in a job. It has a listener of its
 * own, and one at each of the job's addresses that no other process has. Only on the event loop.
 */
final class JobSockets {
  private static final SecureRandom RANDOM = new SecureRandom();

  private final Job job;
  private final JobPlace place;
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

  /** The listeners at the job's addresses. */
  private final Map<InetSocketAddress, Channel> shared = new HashMap<>();

  private FluxCclException failure;

  JobSockets(Job job, JobPlace place, BootstrapOptions options) {
    this.job = job;
    this.place = place;
    this.key = place.key();
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
   * @param resume the link to resume, or {@link Resume#NONE}
   */
  Handshake.Connector connect(
      InetSocketAddress to, long target, Resume resume, Handshake.Outcome outcome) {
    LinkKind kind = resume == Resume.NONE ? LinkKind.LINK : LinkKind.RESUME;
    Proof request = Proof.of(kind, address, id, target, resume);
    Handshake.Connector connector = new Handshake.Connector(key, request, outcome);
    connector.connect(loop, from, to, channels);
    return connector;
  }

  // ---- listening ----

  private CompletableFuture<Channel> listen(InetSocketAddress at) {
    return Frames.listen(loop, at, job.links, channels, place.describe(), place.rank());
  }

  /** Opens this process's own listener, at a port that none of the job's addresses has. */
  CompletableFuture<InetSocketAddress> openOwn(InetAddress ip, Set<InetSocketAddress> addresses) {
    return listen(new InetSocketAddress(ip, 0))
        .thenCompose(
            bound -> {
              InetSocketAddress own = (InetSocketAddress) bound.localAddress();
              if (addresses.stream().noneMatch(each -> each.getPort() == own.getPort())) {
                return CompletableFuture.completedFuture(own);
              }
              CompletableFuture<InetSocketAddress> other = openOwn(ip, addresses);
              bound.close();
              return other;
            });
  }

  /**
   * Listens at each of the job's addresses that is free and of this host.
   *
   * @return completes with the addresses when all were tried, with the real port in place of port 0
   */
  CompletableFuture<Set<InetSocketAddress>> open(Set<InetSocketAddress> addresses) {
    List<CompletableFuture<InetSocketAddress>> tried =
        addresses.stream()
            .map(at -> shared.containsKey(at) ? CompletableFuture.completedFuture(at) : open(at))
            .toList();
    return CompletableFuture.allOf(tried.toArray(CompletableFuture<?>[]::new))
        .thenApply(
            all ->
                tried.stream()
                    .map(CompletableFuture::join)
                    .collect(Collectors.toCollection(LinkedHashSet::new)));
  }

  private CompletableFuture<InetSocketAddress> open(InetSocketAddress at) {
    return listen(at)
        .handle(
            (bound, reason) -> {
              if (reason != null) {
                failure = FluxCclException.from(reason);
                return at;
              }
              InetSocketAddress real = (InetSocketAddress) bound.localAddress();
              if (job.isLeaving()) {
                bound.close();
              } else {
                shared.put(real, bound);
              }
              return real;
            });
  }

  /** Returns whether this process listens at one of the job's addresses. */
  boolean isOpen() {
    return !shared.isEmpty();
  }

  /** Returns whether this process listens at an address of the job. */
  boolean isAt(InetSocketAddress address) {
    return shared.containsKey(address);
  }

  /** Returns whether a port of this process is that of one of the job's addresses. */
  boolean isShared(int port) {
    return shared.keySet().stream().anyMatch(each -> each.getPort() == port);
  }

  /** Returns why the latest attempt at one of the job's addresses has failed. */
  FluxCclException failure() {
    return failure;
  }
}
