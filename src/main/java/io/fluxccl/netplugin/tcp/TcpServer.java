// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;

/**
 * The listening socket of a device. All listeners of the device share it, so a port range need not
 * be wider than the number of processes. A socket belongs to the listener whose token it sends
 * first. The server drops a pending socket at once if it sends wrong data, and after a time if it
 * sends nothing. If there are too many pending sockets, it drops the oldest first. All state is
 * guarded by this object's lock.
 */
final class TcpServer {
  /** The most pending sockets: sockets that have not sent their hello. */
  static final int MAX_PENDING = OpenFiles.pendingSockets();

  private static final int BACKLOG = 1024;
  private static final long TEND_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
  private static final int ACCEPTS_AT_ONCE = 64;

  /**
   * The most consecutive accepts that may fail. More mean that no file descriptor is left, not that
   * a socket was closed early.
   */
  private static final int MAX_FAILED_ACCEPTS = 100;

  /** The random generator of all listeners of the process: seeding one for each would take long. */
  private static final SecureRandom RANDOM = new SecureRandom();

  private final TcpNetPlugin plugin;
  private final TcpDevice device;
  private final ServerSocketChannel server;
  private final InetSocketAddress address;
  private final List<TcpListenComm> listeners = new ArrayList<>();
  private final ArrayDeque<PendingSocket> pending = new ArrayDeque<>();
  private int failedAccepts;
  private long polledNanos = System.nanoTime();

  private record PendingSocket(TcpSocket socket, ByteBuffer hello, long sinceNanos) {}

  /** Starts to listen at a port of the plugin's range. */
  TcpServer(TcpNetPlugin plugin, TcpDevice device) {
    this.plugin = plugin;
    this.device = device;
    ServerSocketChannel opened = null;
    try {
      opened = ServerSocketChannel.open();
      opened.configureBlocking(false);
      bind(opened, plugin.options().ports());
      address = (InetSocketAddress) opened.getLocalAddress();
    } catch (IOException e) {
      if (opened != null) {
        CloseHelper.quietClose(opened);
      }
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          Text.of(
              "listen on %s (%s): %s",
              device.name(),
              device.address().getHostAddress(),
              OpenFiles.explain(
                  e,
                  e.getMessage()
                      + "; check that the address is this host's, and widen FLUXCCL_PORT_RANGE")),
          e);
    }
    server = opened;
  }

  private void bind(ServerSocketChannel opened, PortRange ports) throws IOException {
    int count = ports.high() - ports.low() + 1;
    // A random start: other listeners have probably taken the first port.
    int start = RANDOM.nextInt(count);
    for (int i = 0; ; i++) {
      int port = ports.low() + (start + i) % count;
      try {
        opened.bind(new InetSocketAddress(device.address(), port), BACKLOG);
        return;
      } catch (BindException e) {
        if (i == count - 1) {
          throw new IOException(
              "no port of " + ports.low() + "-" + ports.high() + " is free: " + e.getMessage(), e);
        }
      }
    }
  }

  InetSocketAddress address() {
    return address;
  }

  /** Returns a new random token, which a peer can't guess. */
  static byte[] newToken() {
    byte[] token = new byte[WireDescriptor.TOKEN_LENGTH];
    RANDOM.nextBytes(token);
    return token;
  }

  synchronized void add(TcpListenComm listener) {
    listeners.add(listener);
  }

  /**
   * Removes a listener: sockets with its token are dropped from now on. Returns whether no listener
   * is left.
   */
  synchronized boolean remove(TcpListenComm listener) {
    listeners.remove(listener);
    return listeners.isEmpty();
  }

  synchronized void close() {
    CloseHelper.quietClose(server);
    pending.forEach(each -> each.socket.close());
    pending.clear();
  }

  /** Polls if no thread has polled for 20 ms. */
  synchronized void tend(long now) {
    if (now - polledNanos > TEND_NANOS) {
      poll(now);
    }
  }

  /** Accepts sockets, and passes those that have sent their hello to their listeners. */
  synchronized void poll(long now) {
    polledNanos = now;
    accept(now);
    Iterator<PendingSocket> each = pending.iterator();
    while (each.hasNext()) {
      if (isSettled(each.next(), now)) {
        each.remove();
      }
    }
  }

  private void accept(long now) {
    try {
      for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        SocketChannel channel = server.accept();
        failedAccepts = 0;
        if (channel == null) {
          return;
        }
        if (pending.size() == MAX_PENDING) {
          drop(pending.poll(), "too many send no hello, and this is the oldest");
        }
        ByteBuffer hello = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
        TcpSocket socket = new TcpSocket(channel);
        pending.add(new PendingSocket(socket, hello, now));
        if (plugin.options().tls().isPresent()) {
          socket.secure(plugin.options().tls().get().accepting());
        }
      }
    } catch (IOException e) {
      String why = "accept on " + device.name() + ": " + OpenFiles.explain(e, e.getMessage());
      // The peer closed the socket before the accept; hellos of other sockets are read later.
      TcpNetPlugin.STRANGERS.warn(why);
      if (OpenFiles.ranOut(e) || ++failedAccepts > MAX_FAILED_ACCEPTS) {
        throw new TransportFailure(FluxCclException.NO_RANK, why, e);
      }
    }
  }

  /** Reads a hello; returns whether its socket was passed to a listener or dropped. */
  private boolean isSettled(PendingSocket each, long now) {
    String wrong = null;
    try {
      boolean secured = each.socket.isSecured();
      if (secured && each.socket.read(each.hello) < 0) {
        wrong = "closed without a word";
      } else if (!each.hello.hasRemaining()) {
        WireDescriptor.Hello hello = WireDescriptor.readHello(each.hello);
        TcpListenComm listener = hello == null ? null : listenerOf(hello.token());
        if (hello == null) {
          wrong = "sent what is no hello";
        } else if (listener == null) {
          wrong = "does not know a handle";
        } else if (listener.joins(each.socket, hello, now)) {
          return true;
        } else {
          wrong = "belongs to another connection";
        }
      } else if (now - each.sinceNanos > plugin.options().handshakeTimeout().toNanos()) {
        wrong = "did not send its hello in " + plugin.options().handshakeTimeout();
      }
    } catch (IOException e) {
      wrong = "failed: " + e.getMessage();
    }
    if (wrong != null) {
      drop(each, wrong);
    }
    return wrong != null;
  }

  private static void drop(PendingSocket each, String why) {
    TcpNetPlugin.STRANGERS.warn(
        "dropped a stray connection from " + each.socket.remote() + ": " + why);
    each.socket.close();
  }

  /**
   * Returns the listener of a token, or null. Takes the same time for every token, so that timing
   * does not reveal how many bytes are right.
   */
  private TcpListenComm listenerOf(byte[] token) {
    TcpListenComm found = null;
    for (TcpListenComm listener : listeners) {
      if (MessageDigest.isEqual(token, listener.token())) {
        found = listener;
      }
    }
    return found;
  }
}
