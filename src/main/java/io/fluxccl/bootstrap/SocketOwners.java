// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.wire.SocketTable;
import io.netty.channel.Channel;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Finds the users that own the two ends of a loopback connection. The kernel lists all sockets of
 * this network namespace with their owners. So this needs no shared file and no statement of the
 * other side, and works between containers that share the loopback.
 */
final class SocketOwners {
  /** The ends of connections that this process holds; those of ranks of one JVM are both here. */
  private static final Set<Ends> OWN = ConcurrentHashMap.newKeySet();

  private record Ends(SocketAddress own, SocketAddress other) {}

  private SocketOwners() {}

  /** Records a connection of this process until it is closed. */
  static void opened(Channel channel) {
    Ends ends = new Ends(channel.localAddress(), channel.remoteAddress());
    OWN.add(ends);
    channel.closeFuture().addListener(closed -> OWN.remove(ends));
  }

  /**
   * Returns whether a connection is one of the loopback whose ends belong to different users, or to
   * users that the kernel does not list.
   *
   * @param local address of this process's end
   * @param remote address of the other end
   * @return completes at once if the tables need not be read, or else on a thread that may block
   */
  static CompletableFuture<Boolean> differ(SocketAddress local, SocketAddress remote) {
    boolean isLoopback = ((InetSocketAddress) remote).getAddress().isLoopbackAddress();
    if (!isLoopback || OWN.contains(new Ends(remote, local))) {
      return CompletableFuture.completedFuture(false);
    }
    String own = SocketTable.key(local, remote);
    String other = SocketTable.key(remote, local);
    return SocketTable.find(Set.of(own, other), BlockingTasks.EXECUTOR)
        .thenApply(rows -> differ(rows.get(own), rows.get(other)));
  }

  static boolean differ(SocketTable.Row own, SocketTable.Row other) {
    return own == null || other == null || !own.user().equals(other.user());
  }
}
