package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.tls.Tls;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/**
 * A listener for one connection at a time. {@link TcpServer} accepts the sockets and passes on
 * those whose sender knows the token of the handle. If the sender connects again before it is
 * accepted, it has given up the earlier connection. Used by one thread at a time, except for {@link
 * #joins}.
 */
final class TcpListenComm implements NetListenComm {
  private final TcpNetPlugin plugin;
  private final int device;
  private final TcpServer server;
  private final byte[] token = TcpServer.newToken();
  private final byte[] handle;

  // The connection's sockets, after the first has arrived. Guarded by the server's lock.
  private TcpSocket[] sockets;

  /** Also read without the lock. */
  private volatile WireDescriptor.Hello first;

  private long firstNanos;
  private int missing;

  private long askedNanos;
  private boolean asked;
  private boolean closed;

  TcpListenComm(TcpNetPlugin plugin, int device, TcpServer server) {
    this.plugin = plugin;
    this.device = device;
    this.server = server;
    handle =
        WireDescriptor.handle(
            server.address(), token, plugin.options().tls().map(Tls::fingerprint).orElse(null));
    server.add(this);
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  byte[] token() {
    return token;
  }

  @Override
  public boolean mayAccept() {
    return first != null;
  }

  @Override
  public NetRecvComm accept() {
    if (closed) {
      throw new InvalidUsage("accept: the listener is closed");
    }
    long now = System.nanoTime();
    synchronized (server) {
      server.poll(now);
      if (first == null) {
        checkTime(now);
        return null;
      }
      asked = false;
      if (missing > 0) {
        checkStreams(now);
        return null;
      }
    }
    return welcome();
  }

  private void checkTime(long now) {
    if (!asked) {
      asked = true;
      askedNanos = now;
    }
    long limit = plugin.options().connectNanos();
    if (limit > 0 && now - askedNanos > limit) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "accept on %s: the sender did not connect in %.1f s; does it live, and does a"
              + " firewall let this port through?",
          text(),
          limit / 1e9);
    }
  }

  private String text() {
    InetSocketAddress at = server.address();
    return plugin.deviceName(device) + ", " + at.getAddress().getHostAddress() + ":" + at.getPort();
  }

  /**
   * Adds a socket whose hello has this listener's token. Returns false if the socket does not fit
   * the others of its connection. Called with the server's lock held.
   */
  boolean joins(TcpSocket socket, WireDescriptor.Hello hello, long now) {
    if (first != null && hello.connection() != first.connection()) {
      discard();
    }
    if (first == null) {
      first = hello;
      firstNanos = now;
      missing = WireDescriptor.sockets(hello.streams());
      sockets = new TcpSocket[missing];
    }
    if (hello.streams() != first.streams() || sockets[hello.stream()] != null) {
      return false;
    }
    sockets[hello.stream()] = socket;
    missing--;
    return true;
  }

  /**
   * Closes the sockets of a connection that is not accepted. Called with the server's lock held.
   */
  private void discard() {
    if (sockets != null) {
      TcpSocket.close(sockets);
    }
    sockets = null;
    first = null;
  }

  /** Throws, and forgets the connection, if its other sockets will not come. */
  private void checkStreams(long now) {
    try {
      checkFirst(now);
    } catch (FluxCclException e) {
      discard();
      throw e;
    }
  }

  /** Throws if the sender of the first socket is gone or does not connect the others in time. */
  private void checkFirst(long now) {
    String who = first.name();
    for (TcpSocket socket : sockets) {
      try {
        if (socket != null && socket.read(ByteBuffer.allocate(1)) < 0) {
          throw RemoteFailure.of(
              FluxCclException.NO_RANK,
              "accept: %s (%s) left before all streams were there",
              socket.remote(),
              who);
        }
      } catch (IOException e) {
        throw RemoteFailure.of(
            FluxCclException.NO_RANK, "accept: %s is gone: %s", who, e.getMessage());
      }
    }
    if (now - firstNanos > plugin.options().handshakeTimeout().toNanos()) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "accept: %d of %d sockets of %s did not come in %s",
          missing,
          sockets.length,
          who,
          plugin.options().handshakeTimeout());
    }
  }

  /** Sends the welcome on the first socket and returns the receiving end. */
  private NetRecvComm welcome() {
    TcpSocket[] all;
    WireDescriptor.Hello sender;
    synchronized (server) {
      all = sockets;
      sender = first;
      sockets = null;
      first = null;
    }
    String peer = all[0].remote() + " (" + sender.name() + ")";
    ByteBuffer out = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
    WireDescriptor.putWelcome(out, WireDescriptor.ownName());
    TcpRecvComm comm = null;
    try {
      // The socket's buffer is empty, so the welcome fits.
      all[0].write(out);
      comm = new TcpRecvComm(plugin, device, peer, all);
    } catch (IOException e) {
      throw RemoteFailure.of(
          FluxCclException.NO_RANK, "accept: %s is gone: %s", peer, e.getMessage());
    } finally {
      if (comm == null) {
        TcpSocket.close(all);
      }
    }
    return plugin.remember(comm);
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    synchronized (server) {
      server.remove(this);
      discard();
    }
    plugin.forget(this, device);
  }
}
