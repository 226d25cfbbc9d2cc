// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.CloseHelper;

/** A path between two ends of this host, which does to their sockets what a network can do. */
public final class TcpForwarder implements AutoCloseable {
  private static final int BUFFER = 64 << 10;

  private final InetSocketAddress target;
  private final ServerSocket server;
  private final List<Path> paths = new CopyOnWriteArrayList<>();
  private final AtomicInteger swaps = new AtomicInteger();
  private final AtomicLong forwarded = new AtomicLong();

  // Guarded by this.
  private boolean cut;
  private boolean closed;

  /** A socket from the one end, and one to the other. */
  private final class Path {
    final Socket from;
    final Socket to = new Socket();

    /** Guarded by the forwarder. */
    boolean dead;

    Path(Socket from) {
      this.from = from;
    }

    void open() {
      try {
        awaitPassage();
        to.connect(target);
        start(() -> pump(from, to, true));
        start(() -> pump(to, from, false));
      } catch (IOException e) {
        end();
      }
    }

    private void pump(Socket in, Socket out, boolean mayChange) {
      byte[] bytes = new byte[BUFFER];
      try {
        for (int n = in.getInputStream().read(bytes); n >= 0; n = in.getInputStream().read(bytes)) {
          awaitPassage();
          if (mayChange) {
            change(bytes, n);
          }
          out.getOutputStream().write(bytes, 0, n);
          forwarded.addAndGet(n);
        }
        awaitPassage();
      } catch (IOException e) {
        // A socket was reset or closed: the other one ends below.
      }
      end();
    }

    private void awaitPassage() throws IOException {
      synchronized (TcpForwarder.this) {
        while ((cut || dead) && !closed) {
          try {
            TcpForwarder.this.wait();
          } catch (InterruptedException e) {
            throw new IOException(e);
          }
        }
      }
    }

    void end() {
      paths.remove(this);
      CloseHelper.quietCloseAll(from, to);
    }

    void reset() {
      try {
        from.setSoLinger(true, 0);
        to.setSoLinger(true, 0);
      } catch (IOException e) {
        // It is closed already.
      }
      end();
    }
  }

  /** Forwards from a port of the loopback to a port of the loopback. */
  public TcpForwarder(int port) throws IOException {
    target = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    start(this::accept);
  }

  public int port() {
    return server.getLocalPort();
  }

  private void accept() {
    try {
      while (true) {
        Path path = new Path(server.accept());
        paths.add(path);
        start(path::open);
      }
    } catch (IOException e) {
      // It was closed.
    }
  }

  private static void start(Runnable task) {
    Thread thread = new Thread(task, "forwarder");
    thread.setDaemon(true);
    thread.start();
  }

  private void change(byte[] bytes, int n) {
    // Behind the headers of short messages, in the middle of a long one.
    if (n > 8192 && swaps.get() > 0 && swaps.getAndDecrement() > 0) {
      ByteBuffer words = ByteBuffer.wrap(bytes);
      int at = n / 2 & -Long.BYTES;
      long first = words.getLong(at);
      words.putLong(at, words.getLong(at + Long.BYTES));
      words.putLong(at + Long.BYTES, first);
    }
  }

  /**
   * Swaps two 8-byte words in each of the next {@code times} long reads that are sent to the
   * listener.
   */
  public void swapWords(int times) {
    swaps.set(times);
  }

  /** The number of bytes that have passed. */
  public long forwarded() {
    return forwarded.get();
  }

  /** Resets all sockets. */
  public void reset() {
    paths.forEach(Path::reset);
  }

  /** Drops all bytes from now on, without closing the sockets. */
  public synchronized void cut() {
    cut = true;
  }

  /**
   * Lets bytes pass again.
   *
   * @param onOldSockets whether also on the sockets of before the cut
   */
  public synchronized void restore(boolean onOldSockets) {
    cut = false;
    if (!onOldSockets) {
      paths.stream().filter(path -> path.to.isConnected()).forEach(path -> path.dead = true);
    }
    notifyAll();
  }

  /** Ends the listener and all sockets. */
  @Override
  public void close() {
    synchronized (this) {
      closed = true;
      notifyAll();
    }
    CloseHelper.quietClose(server);
    paths.forEach(Path::end);
  }
}
