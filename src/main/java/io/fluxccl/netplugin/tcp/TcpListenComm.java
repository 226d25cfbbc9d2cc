package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;
import java.io.IOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.Iterator;

/**
 * Waits for the sockets of one connection. Who knows the token of the handle belongs to it; what
 * else connects is dropped: at once if it says something wrong, after a time if it says nothing,
 * and the oldest first if there are many. Used by one thread at a time.
 */
final class TcpListenComm implements NetListenComm {
  /** As many sockets may be about to say who they are. */
  static final int MAX_STRANGERS = 64;

  private static final int BACKLOG = 1024;
  private static final int ACCEPTS_AT_ONCE = 64;

  /** In a row: no file descriptor is left, rather than a socket that went away. */
  private static final int MAX_FAILED_ACCEPTS = 100;

  /** Random for all listeners of the process; seeding one each would take long. */
  private static final SecureRandom RANDOM = new SecureRandom();

  private final TcpNetPlugin plugin;
  private final int device;
  private final ServerSocketChannel server;
  private final byte[] token = new byte[WireDescriptor.TOKEN_LENGTH];
  private final byte[] handle;
  private final ArrayDeque<Stranger> strangers = new ArrayDeque<>();

  /** The connection's sockets once the first has come. */
  private SocketChannel[] sockets;

  private WireDescriptor.Hello first;
  private long firstNanos;
  private int missing;
  private long askedNanos;
  private boolean asked;
  private int failedAccepts;
  private boolean closed;

  private record Stranger(SocketChannel channel, ByteBuffer hello, long sinceNanos) {}

  TcpListenComm(TcpNetPlugin plugin, int device, TcpDevice where) {
    this.plugin = plugin;
    this.device = device;
    RANDOM.nextBytes(token);
    ServerSocketChannel opened = null;
    try {
      opened = ServerSocketChannel.open();
      opened.configureBlocking(false);
      bind(opened, where, plugin.options().ports());
      int port = ((InetSocketAddress) opened.getLocalAddress()).getPort();
      handle = WireDescriptor.handle(where.address(), port, token);
    } catch (IOException e) {
      if (opened != null) {
        Sockets.close(opened);
      }
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          "listen on " + where.name() + " (" + where.address().getHostAddress() + "): " + e,
          e);
    }
    server = opened;
  }

  private static void bind(ServerSocketChannel server, TcpDevice where, PortRange ports)
      throws IOException {
    int count = ports.high() - ports.low() + 1;
    // Not all from the first: other listeners have taken that.
    int start = RANDOM.nextInt(count);
    for (int i = 0; ; i++) {
      int port = ports.low() + (start + i) % count;
      try {
        server.bind(new InetSocketAddress(where.address(), port), BACKLOG);
        return;
      } catch (BindException e) {
        if (i == count - 1) {
          throw new IOException(
              "no port of " + ports.low() + "-" + ports.high() + " is free: " + e.getMessage(), e);
        }
      }
    }
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  @Override
  public NetRecvComm accept() {
    if (closed) {
      throw new InvalidUsage("accept: the listener is closed");
    }
    long now = System.nanoTime();
    takeNew(now);
    Iterator<Stranger> each = strangers.iterator();
    while (each.hasNext()) {
      if (heard(each.next(), now)) {
        each.remove();
      }
    }
    if (first == null) {
      checkTime(now);
      return null;
    }
    if (missing > 0) {
      checkFirst(now);
      return null;
    }
    return welcome();
  }

  private void takeNew(long now) {
    try {
      for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        SocketChannel channel = server.accept();
        failedAccepts = 0;
        if (channel == null) {
          return;
        }
        if (strangers.size() == MAX_STRANGERS) {
          Sockets.close(strangers.poll().channel);
        }
        Stranger stranger =
            new Stranger(channel, WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH), now);
        strangers.add(stranger);
        Sockets.configure(channel);
      }
    } catch (IOException e) {
      // One that was gone before it was accepted; of those that remain the rest is heard later.
      plugin.note("a socket was gone before it was accepted: " + e.getMessage());
      if (++failedAccepts > MAX_FAILED_ACCEPTS) {
        throw new TransportFailure(
            FluxCclException.NO_RANK, "accept on " + text() + ": " + e.getMessage(), e);
      }
    }
  }

  private void checkTime(long now) {
    if (!asked) {
      asked = true;
      askedNanos = now;
    }
    long limit = plugin.options().connectNanos();
    if (limit > 0 && now - askedNanos > limit) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "accept on %s: the sender did not connect in %.1f s; does it live, and does a"
                  + " firewall let this port through?",
              text(), limit / 1e9));
    }
  }

  private String text() {
    InetSocketAddress at = WireDescriptor.readHandle(ByteBuffer.wrap(handle)).address();
    return plugin.deviceName(device) + ", " + at.getAddress().getHostAddress() + ":" + at.getPort();
  }

  /** Reads what a stranger says; true when it is none any more. */
  private boolean heard(Stranger stranger, long now) {
    String wrong = null;
    try {
      if (stranger.channel.read(stranger.hello) < 0) {
        wrong = "closed without a word";
      } else if (!stranger.hello.hasRemaining()) {
        WireDescriptor.Hello hello = WireDescriptor.readHello(stranger.hello);
        if (hello == null) {
          wrong = "said what is no hello";
        } else if (!MessageDigest.isEqual(hello.token(), token)) {
          wrong = "does not know the handle";
        } else if (joins(stranger.channel, hello, now)) {
          return true;
        } else {
          wrong = "belongs to another connection";
        }
      } else if (now - stranger.sinceNanos > plugin.options().handshakeTimeout().toNanos()) {
        wrong = "did not say who it is in " + plugin.options().handshakeTimeout();
      }
    } catch (IOException e) {
      wrong = "failed: " + e.getMessage();
    }
    if (wrong != null) {
      plugin.note("dropped a stray connection from " + address(stranger.channel) + ": " + wrong);
      Sockets.close(stranger.channel);
    }
    return wrong != null;
  }

  private boolean joins(SocketChannel channel, WireDescriptor.Hello hello, long now) {
    if (first == null) {
      first = hello;
      firstNanos = now;
      missing = WireDescriptor.sockets(hello.streams());
      sockets = new SocketChannel[missing];
    }
    if (hello.connection() != first.connection()
        || hello.streams() != first.streams()
        || sockets[hello.stream()] != null) {
      return false;
    }
    sockets[hello.stream()] = channel;
    missing--;
    return true;
  }

  /** The sender may have died with some of its sockets connected. */
  private void checkFirst(long now) {
    String who = first.name();
    for (SocketChannel socket : sockets) {
      try {
        if (socket != null && socket.read(ByteBuffer.allocate(1)) < 0) {
          throw new RemoteFailure(
              FluxCclException.NO_RANK,
              "accept: " + address(socket) + " (" + who + ") left before all streams were there");
        }
      } catch (IOException e) {
        throw new RemoteFailure(
            FluxCclException.NO_RANK, "accept: " + who + " is gone: " + e.getMessage());
      }
    }
    if (now - firstNanos > plugin.options().handshakeTimeout().toNanos()) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "accept: %d of %d sockets of %s did not come in %s",
              missing, sockets.length, who, plugin.options().handshakeTimeout()));
    }
  }

  private NetRecvComm welcome() {
    SocketChannel[] all = sockets;
    String peer = address(all[0]) + " (" + first.name() + ")";
    ByteBuffer out = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
    WireDescriptor.putWelcome(out, WireDescriptor.ownName());
    TcpRecvComm comm = null;
    try {
      // Into an empty socket: it fits.
      all[0].write(out);
      comm = new TcpRecvComm(plugin, device, peer, all);
    } catch (IOException e) {
      throw new RemoteFailure(
          FluxCclException.NO_RANK, "accept: " + peer + " is gone: " + e.getMessage());
    } finally {
      if (comm == null) {
        closeSockets();
      }
      sockets = null;
      first = null;
    }
    return plugin.remember(comm);
  }

  private void closeSockets() {
    for (SocketChannel socket : sockets) {
      if (socket != null) {
        Sockets.close(socket);
      }
    }
  }

  static String address(SocketChannel channel) {
    try {
      InetSocketAddress remote = (InetSocketAddress) channel.getRemoteAddress();
      return remote == null
          ? "nobody"
          : remote.getAddress().getHostAddress() + ":" + remote.getPort();
    } catch (IOException e) {
      return "a closed socket";
    }
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    Sockets.close(server);
    strangers.forEach(stranger -> Sockets.close(stranger.channel));
    if (sockets != null) {
      closeSockets();
    }
    plugin.forget(this);
  }
}
