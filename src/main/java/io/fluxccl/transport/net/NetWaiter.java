// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.Pipe;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.SelectorProvider;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.agrona.CloseHelper;

/**
 * Puts the agent to sleep until a socket of one of its links is ready. A link adds its sockets when
 * it is {@linkplain Link#watchedBy watched}. Any thread may call {@link #wake}; only the agent
 * calls the other methods.
 */
public final class NetWaiter implements AutoCloseable {
  private static final Consumer<SelectionKey> TELL =
      key -> {
        if (key.attachment() != null) {
          ((Watched) key.attachment()).ready();
        }
      };

  /** The user of a watched socket. Called by the agent. */
  public interface Watched {
    /** Returns the operations of {@link SelectionKey} that the user waits for, 0 for none. */
    int interest();

    /** Records that the socket is ready for an operation of {@link #interest}, or has failed. */
    void ready();
  }

  private final Selector selector;
  private final List<SelectionKey> keys = new ArrayList<>();

  /**
   * The pipe that ends a sleep. It is several microseconds faster than {@link Selector#wakeup},
   * which wakes the sleeper while it holds a lock that the sleeper needs at once.
   */
  private final Pipe pipe;

  private final ByteBuffer token = ByteBuffer.allocateDirect(1);
  private final ByteBuffer tokens = ByteBuffer.allocateDirect(16);

  /** Whether the pipe contains a token, or a thread is about to write one. */
  private final AtomicBoolean woken = new AtomicBoolean();

  /**
   * Creates a waiter that watches nothing.
   *
   * @throws TransportFailure if the system can't open a selector or a pipe
   */
  public NetWaiter() {
    this(SelectorProvider.provider());
  }

  NetWaiter(SelectorProvider provider) {
    Selector opened = null;
    try {
      opened = provider.openSelector();
      pipe = provider.openPipe();
      pipe.sink().configureBlocking(false);
      pipe.source().configureBlocking(false);
      pipe.source().register(opened, SelectionKey.OP_READ);
    } catch (IOException e) {
      CloseHelper.quietClose(opened);
      throw new TransportFailure(
          FluxCclException.NO_RANK, "no selector: " + OpenFiles.explain(e, e.toString()), e);
    }
    selector = opened;
  }

  /**
   * Watches a socket until it is closed.
   *
   * @param channel the socket, non-blocking
   * @param watched the socket's user, asked for its interest before each sleep and notified when
   *     the socket is ready
   */
  public void add(SelectableChannel channel, Watched watched) {
    try {
      keys.add(channel.register(selector, 0, watched));
    } catch (ClosedChannelException e) {
      // The link reports the closed socket when it is used.
      return;
    }
  }

  /**
   * Sleeps until a watched socket is ready for its user, {@link #wake} is called, or the time has
   * elapsed. Also frees sockets that were closed.
   *
   * @param nanos the longest sleep in nanoseconds; rounded down to milliseconds, 1 at least
   * @throws TransportFailure if the selector fails
   */
  public void await(long nanos) {
    setInterests();
    try {
      selector.select(TELL, Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanos)));
      takeTokens();
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "select failed: " + e, e);
    }
  }

  /**
   * Notifies the users whose sockets are ready, without sleeping.
   *
   * @throws TransportFailure if the selector fails
   */
  public void poll() {
    setInterests();
    try {
      selector.selectNow(TELL);
      takeTokens();
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "select failed: " + e, e);
    }
  }

  private void setInterests() {
    for (int i = keys.size() - 1; i >= 0; i--) {
      SelectionKey key = keys.get(i);
      if (!setInterest(key)) {
        keys.set(i, keys.get(keys.size() - 1));
        keys.remove(keys.size() - 1);
      }
    }
  }

  private static boolean setInterest(SelectionKey key) {
    try {
      int wanted = ((Watched) key.attachment()).interest();
      if (key.interestOps() != wanted) {
        key.interestOps(wanted);
      }
      return true;
    } catch (CancelledKeyException e) {
      return false;
    }
  }

  private void takeTokens() throws IOException {
    if (woken.get()) {
      tokens.clear();
      // A thread that is still to write its token keeps the flag, so that the token is read later.
      if (pipe.source().read(tokens) > 0) {
        woken.set(false);
      }
    }
  }

  /** Ends the current sleep, or else the next one at once. Called by any thread. */
  public void wake() {
    if (woken.get() || woken.getAndSet(true)) {
      return;
    }
    synchronized (token) {
      token.clear();
      try {
        pipe.sink().write(token);
      } catch (IOException e) {
        // The waiter is closed: no thread sleeps any more.
        return;
      }
    }
  }

  @Override
  public void close() {
    Closing.all(selector, pipe.sink(), pipe.source());
  }
}
