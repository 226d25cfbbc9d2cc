// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads one stream of one rank to its end and forwards its lines, on a thread of its own. */
final class LineForwarder {
  private static final Logger LOGGER = LoggerFactory.getLogger(LineForwarder.class);

  /** A longer line is forwarded in pieces, so that the launcher's memory stays bounded. */
  static final int MAX_LINE = 64 * 1024;

  /** The interval at which a waiting thread checks whether an open stream is quiet. */
  private static final Duration CHECK_PERIOD = Duration.ofMillis(50);

  private final int rank;
  private final boolean error;
  private final InputStream in;
  private final Sink sink;
  private final Thread thread;

  /** When bytes last arrived or were forwarded, by {@link System#nanoTime()}. */
  private volatile long lastActive = System.nanoTime();

  /** Whether the sink is taking bytes. */
  private volatile boolean forwarding;

  /** Takes the lines of all ranks. Thread-safe, because each stream of each rank has a thread. */
  interface Sink {
    /** How the bytes end. */
    enum End {
      /** The end of the line. */
      LINE,
      /** More of a long line. */
      MORE,
      /** Nothing: the stream ends without an end of line. */
      STREAM
    }

    /**
     * Takes a line, or a piece of a long one.
     *
     * @param rank the rank that printed it
     * @param error whether it came from stderr
     * @param line its bytes, in whatever charset, without the end of line
     * @param end what follows them
     */
    void line(int rank, boolean error, byte[] line, End end);

    /** Takes a line of the launcher itself, for stderr. */
    void notice(String line);

    /** Called when a rank has failed and is started again. */
    default void restarted(int rank) {}
  }

  private LineForwarder(int rank, boolean error, InputStream in, Sink sink) {
    this.rank = rank;
    this.error = error;
    this.in = in;
    this.sink = sink;
    this.thread =
        new Thread(this::forward, "fluxccl-launch-" + rank + (error ? "-stderr" : "-stdout"));
    thread.setDaemon(true);
  }

  /** Starts to forward a stream. */
  static LineForwarder start(int rank, boolean error, InputStream in, Sink sink) {
    LineForwarder forwarder = new LineForwarder(rank, error, in, sink);
    forwarder.thread.start();
    return forwarder;
  }

  /**
   * Waits for the stream's end, however slow the sink is. Gives up only on a stream that stays open
   * without new bytes, because a left-over process may hold it open.
   *
   * @param since when the process had ended, by {@link System#nanoTime()}
   * @param quiet how long no byte must have arrived, since then
   */
  void await(long since, Duration quiet) throws InterruptedException {
    do {
      thread.join(CHECK_PERIOD.toMillis());
    } while (thread.isAlive() && (forwarding || quietNanos(since) < quiet.toNanos()));
  }

  private long quietNanos(long since) {
    long now = System.nanoTime();
    return Math.min(now - since, now - lastActive);
  }

  private void forward() {
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    byte[] chunk = new byte[8192];
    try {
      for (int length; (length = in.read(chunk)) >= 0; ) {
        forwarding = true;
        for (int i = 0; i < length; i++) {
          add(line, chunk[i]);
        }
        lastActive = System.nanoTime();
        forwarding = false;
      }
    } catch (IOException e) {
      // The process has ended and its pipe is closed, which counts as the stream's end.
      LOGGER.debug("rank {}: output ended with {}", rank, e.toString());
    }
    if (line.size() > 0) {
      forwarding = true;
      forward(line, Sink.End.STREAM);
    }
  }

  private void add(ByteArrayOutputStream line, byte next) {
    if (next == '\n') {
      forward(line, Sink.End.LINE);
      return;
    }
    if (line.size() == MAX_LINE) {
      forward(line, Sink.End.MORE);
    }
    line.write(next);
  }

  private void forward(ByteArrayOutputStream line, Sink.End end) {
    sink.line(rank, error, line.toByteArray(), end);
    line.reset();
  }
}
