package io.fluxccl.netplugin;

import io.fluxccl.FluxCclException;
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
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/**
 * Lets the thread that drives comms sleep until a socket of one of them is ready. A comm over
 * sockets adds them when it is {@linkplain NetComm#watchedBy watched}. All methods but {@link
 * #wake} are called by the thread that drives the comms.
 */
public final class NetWaiter implements AutoCloseable {
  private static final Consumer<SelectionKey> TELL =
      key -> {
        if (key.attachment() != null) {
          ((Watched) key.attachment()).ready();
        }
      };

  /** A socket's comm. Called by the thread that drives the comm. */
  public interface Watched {
    /** Returns the operations of {@link SelectionKey} that the comm waits for, 0 for none. */
    int interest();

    /** The socket is ready for what the comm waits for, or has failed. */
    void ready();
  }

  private final Selector selector;
  private final List<SelectionKey> keys = new ArrayList<>();

  /**
   * Ends a sleep. {@link Selector#wakeup} holds a lock while it wakes the sleeper, who needs that
   * lock at once: a pipe costs several microseconds less.
   */
  private final Pipe pipe;

  private final ByteBuffer token = ByteBuffer.allocateDirect(1);
  private final ByteBuffer tokens = ByteBuffer.allocateDirect(16);

  /** Whether there is a token in the pipe, or about to be. */
  private final AtomicBoolean woken = new AtomicBoolean();

  /**
   * Creates a waiter that watches nothing.
   *
   * @throws TransportFailure if the system refuses a selector
   */
  public NetWaiter() {
    try {
      selector = Selector.open();
      pipe = Pipe.open();
      pipe.sink().configureBlocking(false);
      pipe.source().configureBlocking(false);
      pipe.source().register(selector, SelectionKey.OP_READ);
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "no selector: " + e, e);
    }
  }

  /**
   * Watches a socket until it is closed.
   *
   * @param channel the socket, non-blocking
   * @param watched asked before each sleep, and told when the socket is ready
   */
  public void add(SelectableChannel channel, Watched watched) {
    try {
      keys.add(channel.register(selector, 0, watched));
    } catch (ClosedChannelException e) {
      // Its comm reports that when it is used.
      return;
    }
  }

  /**
   * Sleeps until a watched socket is ready for what its comm waits for, {@link #wake} is called, or
   * the time is up. Also frees sockets that were closed.
   *
   * @param nanos the longest sleep; rounded to milliseconds
   * @throws TransportFailure if the system refuses
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
   * Tells the comms whose sockets are ready, without sleeping.
   *
   * @throws TransportFailure if the system refuses
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
      pipe.source().read(tokens);
      woken.set(false);
    }
  }

  /** Ends the sleep, or the next one at once. Any thread. */
  public void wake() {
    if (woken.get() || woken.getAndSet(true)) {
      return;
    }
    synchronized (token) {
      token.clear();
      try {
        pipe.sink().write(token);
      } catch (IOException e) {
        // Closed: nobody sleeps any more.
        return;
      }
    }
  }

  @Override
  public void close() {
    Closing.all(selector, pipe.sink(), pipe.source());
  }
}
