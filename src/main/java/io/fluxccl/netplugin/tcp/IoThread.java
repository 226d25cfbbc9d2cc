// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.NonblockingThread;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;

/**
 * Moves the parts of several streams. It polls the streams while bytes move, then waits in a
 * selector.
 */
class IoThread implements AutoCloseable {
  static final int LOOKS_BEFORE_SLEEP = 20;
  private static final Consumer<SelectionKey> NOTHING = key -> {};

  private final Selector selector;
  private final List<DataStream> streams = new ArrayList<>();
  private final Queue<DataStream> added = new ConcurrentLinkedQueue<>();
  private final Queue<DataStream> removed = new ConcurrentLinkedQueue<>();
  private final NonblockingThread thread;

  /**
   * Set before the streams are polled for the last time. A thread that posts a part after this poll
   * sees the flag in {@link #wake}, and wakes the selector.
   */
  private volatile boolean asleep;

  private volatile boolean changed;
  private volatile boolean closed;

  /** The reason for which the thread has ended, or null. */
  private volatile IOException broken;

  IoThread(int number) {
    try {
      selector = Selector.open();
    } catch (IOException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "no selector: " + OpenFiles.explain(e, e.toString()), e);
    }
    thread = new NonblockingThread(this::run, "fluxccl-net-" + number);
    thread.start();
  }

  void add(DataStream stream) {
    added.add(stream);
    IOException reason = broken;
    if (reason != null) {
      stream.failed(reason);
    }
    change();
  }

  void remove(DataStream stream) {
    removed.add(stream);
    change();
  }

  /** Wakes the thread if it sleeps. Called after a part was posted. */
  void wake() {
    if (asleep) {
      selector.wakeup();
    }
  }

  private void change() {
    changed = true;
    // A selection also frees the socket of a closed stream.
    selector.wakeup();
  }

  @Override
  public void close() {
    closed = true;
    selector.wakeup();
  }

  private void run() {
    try (selector) {
      int idle = 0;
      while (!closed) {
        if (changed) {
          changed = false;
          takeChanges();
        }
        long moved = 0;
        for (int i = 0; i < streams.size(); i++) {
          moved += streams.get(i).work();
        }
        if (moved > 0) {
          idle = 0;
        } else if (++idle < LOOKS_BEFORE_SLEEP) {
          Thread.onSpinWait();
        } else {
          idle = 0;
          sleep();
        }
      }
    } catch (IOException | RuntimeException | Error e) {
      // No thread moves the posted parts any more: fail all streams, and those added later, too.
      IOException reason = new IOException("the I/O thread has ended: " + e, e);
      broken = reason;
      streams.addAll(added);
      for (DataStream stream : streams) {
        stream.failed(reason);
      }
    }
  }

  private void takeChanges() throws IOException {
    for (DataStream stream = added.poll(); stream != null; stream = added.poll()) {
      try {
        stream.key(stream.channel().register(selector, 0));
        streams.add(stream);
      } catch (ClosedChannelException e) {
        // The stream was closed before its first part.
        streams.remove(stream);
      }
    }
    for (DataStream stream = removed.poll(); stream != null; stream = removed.poll()) {
      streams.remove(stream);
    }
    selector.selectNow(NOTHING);
  }

  private void sleep() throws IOException {
    asleep = true;
    long moved = 0;
    for (int i = 0; i < streams.size(); i++) {
      // TLS may hold all bytes of a part that was posted just before: its socket stays empty.
      moved += streams.get(i).work();
      streams.get(i).interest();
    }
    if (moved == 0 && !changed && !closed) {
      selector.select(NOTHING);
    }
    asleep = false;
  }
}
