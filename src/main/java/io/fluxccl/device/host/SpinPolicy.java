package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * How long a waiting thread may keep a core to itself. While all threads that may wait at the same
 * time have a core each, a wait polls for some milliseconds before it first yields; when there are
 * more of them than cores, it yields at once, because what it waits for can't be done before
 * another thread has run.
 *
 * <p>Milliseconds, because two ranks may have landed on one core while another is idle. Yielding to
 * each other, they would stay there: the kernel leaves alone what has just run. Who is kept waiting
 * for a whole time slice gets moved.
 *
 * <p>Streams and the threads of blocks count themselves while they have work, proxies and event
 * loops while they run; others may, with {@link #enter()} and {@link #exit()}. Other processes are
 * taken to be like this one. Thread-safe.
 */
public final class SpinPolicy {
  private static final int CORES = Runtime.getRuntime().availableProcessors();
  private static final int ROOMY_POLLS = 200_000;
  private static final int CROWDED_POLLS = 1;

  private static final AtomicInteger THREADS = new AtomicInteger();
  private static volatile int processesOnHost = 1;

  /** How many polls a wait does before it yields; read at every step, written when that changes. */
  private static volatile int pollsBeforeYield = ROOMY_POLLS;

  private SpinPolicy() {}

  /**
   * Says how many processes of this host work like this one; the communicator knows.
   *
   * @param processes 1 or more, this one included
   * @throws InvalidUsage if it is less than 1
   */
  public static void setProcessesOnHost(int processes) {
    if (processes < 1) {
      throw new InvalidUsage("processesOnHost=" + processes + "; there is at least this one");
    }
    processesOnHost = processes;
    update(THREADS.get());
  }

  /** Counts the calling thread among those that may wait. */
  public static void enter() {
    update(THREADS.incrementAndGet());
  }

  /** Takes the calling thread away from those that may wait. */
  public static void exit() {
    update(THREADS.decrementAndGet());
  }

  /** Whether more threads may wait than there are cores. */
  public static boolean isCrowded() {
    return pollsBeforeYield != ROOMY_POLLS;
  }

  static int pollsBeforeYield() {
    return pollsBeforeYield;
  }

  private static void update(int threads) {
    int polls = (long) Math.max(1, threads) * processesOnHost > CORES ? CROWDED_POLLS : ROOMY_POLLS;
    if (polls != pollsBeforeYield) {
      pollsBeforeYield = polls;
    }
  }
}
