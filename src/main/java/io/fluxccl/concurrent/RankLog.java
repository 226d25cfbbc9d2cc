// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.slf4j.MDC;

/**
 * The rank in the context of log lines (SLF4J's MDC), under the key {@value #KEY}. Threads and
 * tasks of the library inherit it from the creating thread, so log lines have no extra cost. A
 * thread that serves all ranks of the JVM has it while there is only one rank, and otherwise sets
 * it for each line. Thread-safe.
 */
public final class RankLog {
  /** The key in the MDC. */
  public static final String KEY = "fluxccl.rank";

  // Guarded by itself. The ranks of this JVM, one for each job.
  private static final List<Integer> RANKS = new ArrayList<>();

  private RankLog() {}

  /** Adds a rank of a job to those of this JVM. */
  public static void joined(int rank) {
    synchronized (RANKS) {
      RANKS.add(rank);
    }
  }

  /** Removes a rank from those of this JVM. */
  public static void left(int rank) {
    synchronized (RANKS) {
      RANKS.remove((Integer) rank);
    }
  }

  /**
   * Sets the rank of the current thread, which serves all ranks of the JVM, if there is only one.
   */
  public static void serveAll() {
    synchronized (RANKS) {
      if (RANKS.stream().distinct().count() == 1) {
        MDC.put(KEY, RANKS.get(0).toString());
      } else {
        MDC.remove(KEY);
      }
    }
  }

  /**
   * Runs code for a rank. The code, and the threads and tasks that it creates, log under that rank.
   */
  public static <T> T of(int rank, Supplier<T> body) {
    return of(Integer.toString(rank), body);
  }

  private static <T> T of(String rank, Supplier<T> body) {
    String before = MDC.get(KEY);
    MDC.put(KEY, rank);
    try {
      return body.get();
    } finally {
      if (before == null) {
        MDC.remove(KEY);
      } else {
        MDC.put(KEY, before);
      }
    }
  }

  /** Writes a line for a rank. */
  public static void line(int rank, Runnable log) {
    of(Integer.toString(rank), returningNull(log));
  }

  /** Returns a task that logs under the rank of the thread that calls this, if it has one. */
  static Runnable inherit(Runnable task) {
    String rank = MDC.get(KEY);
    return rank == null || task == null ? task : () -> of(rank, returningNull(task));
  }

  private static Supplier<Void> returningNull(Runnable task) {
    return () -> {
      task.run();
      return null;
    };
  }
}
