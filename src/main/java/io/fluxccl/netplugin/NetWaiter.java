package io.fluxccl.netplugin;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntSupplier;

/**
 * Lets the thread that drives comms sleep until a socket of one of them is ready. A comm over
 * sockets adds them when it is {@linkplain NetComm#watchedBy watched}. All methods but {@link
 * #wake} are called by the thread that drives the comms.
 */
public final class NetWaiter implements AutoCloseable {
  private static final Consumer<SelectionKey> NOTHING = key -> {};

  private final Selector selector;
  private final List<SelectionKey> keys = new ArrayList<>();

  /**
   * Creates a waiter that watches nothing.
   *
   * @throws TransportFailure if the system refuses a selector
   */
  public NetWaiter() {
    try {
      selector = Selector.open();
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "no selector: " + e, e);
    }
  }

  /**
   * Watches a socket until it is closed.
   *
   * @param channel the socket, non-blocking
   * @param interest returns the operations of {@link SelectionKey} that the comm waits for, 0 for
   *     none; asked before each sleep
   */
  public void add(SelectableChannel channel, IntSupplier interest) {
    try {
      keys.add(channel.register(selector, 0, interest));
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
    for (int i = keys.size() - 1; i >= 0; i--) {
      SelectionKey key = keys.get(i);
      if (!setInterest(key)) {
        keys.set(i, keys.get(keys.size() - 1));
        keys.remove(keys.size() - 1);
      }
    }
    try {
      selector.select(NOTHING, Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanos)));
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "select failed: " + e, e);
    }
  }

  private static boolean setInterest(SelectionKey key) {
    try {
      int wanted = ((IntSupplier) key.attachment()).getAsInt();
      if (key.interestOps() != wanted) {
        key.interestOps(wanted);
      }
      return true;
    } catch (CancelledKeyException e) {
      return false;
    }
  }

  /** Ends the sleep, or the next one at once. Any thread. */
  public void wake() {
    selector.wakeup();
  }

  @Override
  public void close() {
    try {
      selector.close();
    } catch (IOException e) {
      throw new TransportFailure(FluxCclException.NO_RANK, "closing a selector: " + e, e);
    }
  }
}
