// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.netty.channel.Channel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The listeners of one process: its own, and one at each of the job's addresses that no other
 * process has. All serve the same {@link Links}. Only on the event loop.
 */
final class JoinListener {
  /** An earlier run may be about to release the port; or another service has it. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(3);

  private final Job job;
  private final Links links;
  private final String owner;
  private final int rank;
  private final Map<InetSocketAddress, Channel> shared = new HashMap<>();
  private final long beganNanos = System.nanoTime();
  private FluxCclException failure;

  /**
   * @param owner listens, for errors
   * @param rank the owner's, or {@link FluxCclException#NO_RANK}
   */
  JoinListener(Job job, Links links, String owner, int rank) {
    this.job = job;
    this.links = links;
    this.owner = owner;
    this.rank = rank;
  }

  /** Opens this process's own listener, at a port that none of the job's addresses has. */
  CompletableFuture<InetSocketAddress> openOwn(InetAddress ip, Set<InetSocketAddress> addresses) {
    return job.sockets
        .listen(new InetSocketAddress(ip, 0), links, owner, rank)
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
    CompletableFuture<Set<InetSocketAddress>> tried =
        CompletableFuture.completedFuture(new LinkedHashSet<>());
    for (InetSocketAddress each : addresses) {
      CompletableFuture<InetSocketAddress> opened =
          shared.containsKey(each) ? CompletableFuture.completedFuture(each) : open(each);
      tried =
          tried.thenCombine(
              opened,
              (known, at) -> {
                known.add(at);
                return known;
              });
    }
    return tried;
  }

  private CompletableFuture<InetSocketAddress> open(InetSocketAddress at) {
    return job.sockets
        .listen(at, links, owner, rank)
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

  /** Returns whether the address has not become free for too long. */
  boolean isLate() {
    return System.nanoTime() - beganNanos > PATIENCE_NANOS;
  }

  /** Returns why the latest attempt at one of the job's addresses has failed. */
  FluxCclException failure() {
    return failure;
  }
}
