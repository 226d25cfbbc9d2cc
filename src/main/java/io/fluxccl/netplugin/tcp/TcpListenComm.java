// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.transport.tcp.TcpServer;
import io.fluxccl.transport.tcp.TcpSocket;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * A listener. {@link TcpServer} accepts the sockets and passes on those whose sender knows the
 * token of the handle. Usually there is one sender. Several senders become connections of their
 * own, in the order of their first sockets. A connection whose sender left before the accept is
 * dropped. Used by one thread at a time, except for {@link #take}.
 */
final class TcpListenComm implements NetListenComm, TcpServer.Listener {
  /** The most connections that wait to be accepted. */
  private static final int MAX_WAITING = 1024;

  private final TcpNetPlugin plugin;
  private final int device;
  private final TcpServer server;
  private final byte[] token = TcpServer.newToken();
  private final byte[] handle;

  /** The connections that are not accepted yet. Guarded by the server's lock. */
  private final List<PartialAccept> waiting = new ArrayList<>();

  private long askedNanos;
  private boolean asked;
  private final Lifecycle lifecycle = new Lifecycle(this);

  /** The sockets of a connection, of which some may be missing. */
  private static final class PartialAccept {
    final WireDescriptor.Hello first;
    final long firstNanos;
    final TcpSocket[] sockets;
    int missing;

    PartialAccept(WireDescriptor.Hello first, long now) {
      this.first = first;
      this.firstNanos = now;
      this.missing = WireDescriptor.sockets(first.streams());
      this.sockets = new TcpSocket[missing];
    }

    /** Returns why the sender of these sockets has disconnected, or null if it has not. */
    String leftBecause() {
      for (TcpSocket socket : sockets) {
        try {
          // A sender is silent before its welcome.
          if (socket != null && socket.read(ByteBuffer.allocate(1)) < 0) {
            return Text.of("%s (%s) left", socket.remote(), first.name());
          }
        } catch (IOException e) {
          return Text.of("%s disconnected: %s", first.name(), e.getMessage());
        }
      }
      return null;
    }
  }

  TcpListenComm(TcpNetPlugin plugin, int device, TcpServer server) {
    this.plugin = plugin;
    this.device = device;
    this.server = server;
    handle = server.handle(token).encode();
    server.add(this);
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  @Override
  public byte[] token() {
    return token;
  }

  @Override
  public NetRecvComm accept() {
    if (lifecycle.isClosed()) {
      throw new NetMisuse("accept: the listener is closed");
    }
    long now = System.nanoTime();
    PartialAccept complete;
    synchronized (server) {
      server.poll(now);
      asked &= waiting.isEmpty();
      complete = firstComplete(now);
      if (complete == null) {
        checkTime(now);
        return null;
      }
    }
    return welcome(complete);
  }

  /**
   * Removes the first connection with all its sockets and returns it, or null. Drops the connection
   * and throws if sockets are missing and its sender has left or is late. Called with the server's
   * lock held.
   */
  private PartialAccept firstComplete(long now) {
    for (Iterator<PartialAccept> all = waiting.iterator(); all.hasNext(); ) {
      PartialAccept each = all.next();
      String gone = each.leftBecause();
      boolean isLate = now - each.firstNanos > plugin.options().handshakeTimeout().toNanos();
      if (gone != null || each.missing > 0 && isLate) {
        all.remove();
        TcpSocket.close(each.sockets);
        if (each.missing > 0) {
          throw gone != null ? leftEarly(gone) : incomplete(each);
        }
        TcpServer.STRANGERS.warn("accept on " + text() + ": " + gone);
      } else if (each.missing == 0) {
        all.remove();
        return each;
      }
    }
    return null;
  }

  private static RemoteFailure leftEarly(String gone) {
    return RemoteFailure.of(
        FluxCclException.NO_RANK, "accept: %s before all streams were there", gone);
  }

  private Timeout incomplete(PartialAccept each) {
    return Timeout.of(
        FluxCclException.NO_RANK,
        "accept: %d of %d sockets of %s did not connect within %s",
        each.missing,
        each.sockets.length,
        each.first.name(),
        plugin.options().handshakeTimeout());
  }

  private void checkTime(long now) {
    if (!waiting.isEmpty()) {
      return;
    }
    if (!asked) {
      asked = true;
      askedNanos = now;
    }
    long limit = plugin.options().connectNanos();
    if (limit > 0 && now - askedNanos > limit) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "accept on %s: the sender did not connect in %.1f s; is it alive, and does a"
              + " firewall let this port through?",
          text(),
          limit / 1e9);
    }
  }

  private String text() {
    InetSocketAddress at = server.address();
    return plugin.deviceName(device) + ", " + at.getAddress().getHostAddress() + ":" + at.getPort();
  }

  @Override
  public String take(TcpSocket socket, ByteBuffer bytes, long now) {
    WireDescriptor.Hello hello = WireDescriptor.readHello(bytes);
    if (hello == null) {
      return "sent what is no hello";
    }
    return joins(socket, hello, now) ? null : "belongs to another connection";
  }

  /** Adds a socket. Returns false if the socket does not fit the others of its connection. */
  private boolean joins(TcpSocket socket, WireDescriptor.Hello hello, long now) {
    PartialAccept found = null;
    for (PartialAccept each : waiting) {
      found = each.first.connection() == hello.connection() ? each : found;
    }
    if (found == null) {
      dropThoseThatLeft();
      if (waiting.size() == MAX_WAITING) {
        return false;
      }
      found = new PartialAccept(hello, now);
      waiting.add(found);
    }
    if (hello.streams() != found.first.streams() || found.sockets[hello.stream()] != null) {
      return false;
    }
    found.sockets[hello.stream()] = socket;
    found.missing--;
    return true;
  }

  /** Drops connections whose senders have left, so that few wait while no thread accepts. */
  private void dropThoseThatLeft() {
    for (Iterator<PartialAccept> all = waiting.iterator(); all.hasNext(); ) {
      PartialAccept each = all.next();
      if (each.leftBecause() != null) {
        all.remove();
        TcpSocket.close(each.sockets);
      }
    }
  }

  /** Sends the welcome on the first socket and returns the receiving end. */
  private NetRecvComm welcome(PartialAccept complete) {
    TcpSocket[] all = complete.sockets;
    String peer = all[0].remote() + " (" + complete.first.name() + ")";
    ByteBuffer out = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
    WireDescriptor.putWelcome(out, WireDescriptor.ownName());
    TcpRecvComm comm = null;
    try {
      // The socket's buffer is empty, so the welcome fits.
      all[0].write(out);
      comm = new TcpRecvComm(plugin, device, peer, all);
    } catch (IOException e) {
      throw RemoteFailure.of(
          FluxCclException.NO_RANK, "accept: %s disconnected: %s", peer, e.getMessage());
    } finally {
      if (comm == null) {
        TcpSocket.close(all);
      }
    }
    return plugin.remember(comm);
  }

  @Override
  public void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    synchronized (server) {
      server.remove(this);
      waiting.forEach(each -> TcpSocket.close(each.sockets));
      waiting.clear();
    }
    plugin.forget(this, device);
  }
}
