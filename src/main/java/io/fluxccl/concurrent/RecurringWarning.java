// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;

/**
 * A warning that can occur at any rate, for example by remote processes. It logs one line per
 * minute, with the number of omitted warnings since the last line. Omitted warnings are logged at
 * debug level. Thread-safe.
 */
public final class RecurringWarning {
  private static final long INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);

  private final Logger log;
  private final LongSupplier clock;
  private boolean warned;
  private long lastNanos;
  private long leftOut;

  /** Creates a warning that has not been logged yet. */
  public RecurringWarning(Logger log) {
    this(log, System::nanoTime);
  }

  /**
   * @param clock returns the time in nanoseconds
   */
  RecurringWarning(Logger log, LongSupplier clock) {
    this.log = log;
    this.clock = clock;
  }

  /** Logs a message, or counts it. */
  public void warn(String message) {
    long more = linesLeftOut();
    if (more < 0) {
      log.debug(message);
    } else if (more == 0) {
      log.warn("{}; more of them within a minute are counted only", message);
    } else {
      log.warn("{}; {} more since the last such line", message, more);
    }
  }

  /** Returns the number of omitted warnings since the last line, or -1 to omit this one. */
  private synchronized long linesLeftOut() {
    long now = clock.getAsLong();
    if (warned && now - lastNanos < INTERVAL_NANOS) {
      leftOut++;
      return -1;
    }
    long more = leftOut;
    warned = true;
    lastNanos = now;
    leftOut = 0;
    return more;
  }
}
