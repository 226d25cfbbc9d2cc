package io.fluxccl.cli;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads one stream of one rank to its end and passes its lines on, on a thread of its own. */
final class LineForwarder {
  private static final Logger LOGGER = LoggerFactory.getLogger(LineForwarder.class);

  /** A longer line is passed on in pieces, so that a rank can't make the launcher hold it all. */
  static final int MAX_LINE = 64 * 1024;

  /** How often is looked whether a stream that stays open is quiet. */
  private static final Duration LOOK = Duration.ofMillis(50);

  private final int rank;
  private final boolean error;
  private final InputStream in;
  private final OutputSink sink;
  private final Thread thread;

  /** When bytes last came or were passed on, by {@link System#nanoTime()}. */
  private volatile long lastActive = System.nanoTime();

  /** Whether the sink has bytes that it has not taken yet. */
  private volatile boolean passingOn;

  private LineForwarder(int rank, boolean error, InputStream in, OutputSink sink) {
    this.rank = rank;
    this.error = error;
    this.in = in;
    this.sink = sink;
    this.thread =
        new Thread(this::forward, "fluxccl-launch-" + rank + (error ? "-stderr" : "-stdout"));
    thread.setDaemon(true);
  }

  static LineForwarder start(int rank, boolean error, InputStream in, OutputSink sink) {
    LineForwarder forwarder = new LineForwarder(rank, error, in, sink);
    forwarder.thread.start();
    return forwarder;
  }

  /**
   * Waits for the stream's end, however slowly the sink takes what comes. Gives up only on a stream
   * that stays open without a byte coming, as a left-over process may hold it.
   *
   * @param since when the process had ended, by {@link System#nanoTime()}
   * @param quiet how long no byte must have come, since then
   */
  void await(long since, Duration quiet) throws InterruptedException {
    do {
      thread.join(LOOK.toMillis());
    } while (thread.isAlive() && (passingOn || quietNanos(since) < quiet.toNanos()));
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
        passingOn = true;
        for (int i = 0; i < length; i++) {
          if (chunk[i] == '\n') {
            emit(line, OutputSink.End.LINE);
          } else {
            if (line.size() == MAX_LINE) {
              emit(line, OutputSink.End.MORE);
            }
            line.write(chunk[i]);
          }
        }
        lastActive = System.nanoTime();
        passingOn = false;
      }
    } catch (IOException e) {
      // The process is gone and its pipe closed: as good as the stream's end, but not unsaid.
      LOGGER.debug("rank {}: output ended with {}", rank, e.toString());
    }
    if (line.size() > 0) {
      passingOn = true;
      emit(line, OutputSink.End.STREAM);
    }
  }

  private void emit(ByteArrayOutputStream line, OutputSink.End end) {
    sink.line(rank, error, line.toByteArray(), end);
    line.reset();
  }
}
