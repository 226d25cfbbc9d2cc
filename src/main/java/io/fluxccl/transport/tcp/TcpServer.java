// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.RecurringWarning;
import io.fluxccl.tls.Tls;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;
import org.slf4j.LoggerFactory;

/**
 * The listening socket of a device. All listeners of the device share it, so a port range need not
 * be wider than the number of processes. A socket belongs to the listener whose token it sends
 * first. The server drops a pending socket at once if it sends wrong data, and after a time if it
 * sends nothing. If there are too many pending sockets, it drops the oldest first. All state is
 * guarded by this object's lock.
 */
public final class TcpServer implements AutoCloseable {
  /** Warns of unexpected connections at the listeners of this process. */
  public static final RecurringWarning STRANGERS =
      new RecurringWarning(LoggerFactory.getLogger(TcpServer.class));

  /** The most pending sockets: sockets that have not sent their hello. */
  public static final int MAX_PENDING = OpenFiles.pendingSockets();

  private static final int BACKLOG = 1024;

  /** The interval of polls if no listener awaits a connection. */
  private static final long TEND_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  /** The least interval of polls, which all listeners that await a connection share. */
  private static final long POLL_NANOS = TimeUnit.MICROSECONDS.toNanos(200);

  private static final int ACCEPTS_AT_ONCE = 64;

  /**
   * The most consecutive accepts that may fail. More mean that no file descriptor is left, not that
   * a socket was closed early.
   */
  private static final int MAX_FAILED_ACCEPTS = 100;

  /** The random generator of all listeners of the process: seeding one for each would take long. */
  private static final SecureRandom RANDOM = new SecureRandom();

  private static final int TOKEN = Long.BYTES;

  private final String device;
  private final Options options;
  private final ServerSocketChannel server;
  private final InetSocketAddress address;
  private final List<Listener> listeners = new ArrayList<>();
  private final ArrayDeque<PendingSocket> pending = new ArrayDeque<>();
  private int failedAccepts;
  private long polledNanos = System.nanoTime();

  /** A user of the server. Its methods are called with the server's lock held. */
  public interface Listener {
    /** Returns the token that follows the magic number in the hello of a socket for it. */
    byte[] token();

    /**
     * Takes a socket whose hello has this listener's token.
     *
     * @param hello the whole hello, flipped
     * @return null, or the reason for which the server is to drop the socket
     */
    String take(TcpSocket socket, ByteBuffer hello, long now);
  }

  /**
   * The settings of a server.
   *
   * @param ports the ports that it may use
   * @param tls how sockets are encrypted, or empty if they are not
   * @param handshakeTimeout the longest time that a socket may take to send its hello
   * @param magic the number that a hello begins with; a token follows
   * @param helloLength bytes of a hello
   */
  public record Options(
      PortRange ports, Optional<Tls> tls, Duration handshakeTimeout, long magic, int helloLength) {}

  private record PendingSocket(TcpSocket socket, ByteBuffer hello, long sinceNanos) {}

  /**
   * Starts to listen at a port of the range.
   *
   * @param device the name of the interface, for messages
   * @throws TransportFailure if there is no port to listen on
   */
  public TcpServer(String device, InetAddress at, Options options) {
    this.device = device;
    this.options = options;
    ServerSocketChannel opened = null;
    try {
      opened = ServerSocketChannel.open();
      opened.configureBlocking(false);
      bind(opened, at, options.ports());
      address = (InetSocketAddress) opened.getLocalAddress();
    } catch (IOException e) {
      if (opened != null) {
        CloseHelper.quietClose(opened);
      }
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          Text.of(
              "listen on %s (%s): %s",
              device,
              at.getHostAddress(),
              OpenFiles.explain(
                  e,
                  e.getMessage()
                      + "; check that the address is this host's, and widen FLUXCCL_PORT_RANGE")),
          e);
    }
    server = opened;
  }

  private static void bind(ServerSocketChannel opened, InetAddress at, PortRange ports)
      throws IOException {
    int count = ports.high() - ports.low() + 1;
    // A random start: other listeners have probably taken the first port.
    int start = RANDOM.nextInt(count);
    for (int i = 0; ; i++) {
      int port = ports.low() + (start + i) % count;
      try {
        opened.bind(new InetSocketAddress(at, port), BACKLOG);
        return;
      } catch (BindException e) {
        if (i == count - 1) {
          throw new IOException(
              "no port of " + ports.low() + "-" + ports.high() + " is free: " + e.getMessage(), e);
        }
      }
    }
  }

  /** Returns the address that the server is bound to. */
  public InetSocketAddress address() {
    return address;
  }

  /** Returns a new random token, which a peer can't guess. */
  public static byte[] newToken() {
    byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
    RANDOM.nextBytes(token);
    return token;
  }

  /** Returns the handle of a listener with that token. */
  public TcpHandle handle(byte[] token) {
    return new TcpHandle(address, token, options.tls().map(Tls::fingerprint).orElse(null));
  }

  /** Adds a listener. */
  public synchronized void add(Listener listener) {
    listeners.add(listener);
  }

  /**
   * Removes a listener: sockets with its token are dropped from now on. Returns whether no listener
   * is left.
   */
  public synchronized boolean remove(Listener listener) {
    listeners.remove(listener);
    return listeners.isEmpty();
  }

  @Override
  public synchronized void close() {
    CloseHelper.quietClose(server);
    pending.forEach(each -> each.socket.close());
    pending.clear();
  }

  /** Polls if no thread has polled for 20 ms. */
  public synchronized void tend(long now) {
    if (now - polledNanos > TEND_NANOS) {
      poll(now);
    }
  }

  /**
   * Accepts sockets, and passes those that have sent their hello to their listeners. Does nothing
   * if another listener has just polled.
   */
  public synchronized void poll(long now) {
    if (now - polledNanos < POLL_NANOS) {
      return;
    }
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
        ByteBuffer hello =
            ByteBuffer.allocateDirect(options.helloLength()).order(ByteOrder.LITTLE_ENDIAN);
        TcpSocket socket = new TcpSocket(channel);
        // Before it is pending: a pending socket without TLS would send its hello in plain text.
        if (options.tls().isPresent()) {
          socket.secure(options.tls().get().accepting());
        }
        pending.add(new PendingSocket(socket, hello, now));
      }
    } catch (IOException e) {
      String why = "accept on " + device + ": " + OpenFiles.explain(e, e.toString());
      // The peer closed the socket before the accept; hellos of other sockets are read later.
      STRANGERS.warn(why);
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
        ByteBuffer hello = each.hello.flip();
        Listener listener = listenerOf(hello);
        wrong =
            hello.getLong(0) != options.magic()
                ? "sent what is no hello"
                : listener == null
                    ? "does not know a handle"
                    : listener.take(each.socket, hello, now);
        if (wrong == null) {
          return true;
        }
      } else if (now - each.sinceNanos > options.handshakeTimeout().toNanos()) {
        wrong = "did not send its hello in " + options.handshakeTimeout();
      }
    } catch (IOException | RuntimeException e) {
      // An engine of TLS may throw a RuntimeException; the server serves other sockets, too.
      wrong = "failed: " + e;
    }
    if (wrong != null) {
      drop(each, wrong);
    }
    return wrong != null;
  }

  private static void drop(PendingSocket each, String why) {
    STRANGERS.warn("dropped a stray connection from " + each.socket.remote() + ": " + why);
    each.socket.close();
  }

  /**
   * Returns the listener of a token, or null. Takes the same time for every token, so that timing
   * does not reveal how many bytes are right.
   */
  private Listener listenerOf(ByteBuffer hello) {
    byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
    hello.get(TOKEN, token);
    Listener found = null;
    for (Listener listener : listeners) {
      if (MessageDigest.isEqual(token, listener.token())) {
        found = listener;
      }
    }
    return found;
  }
}
