package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * How long a waiting thread may keep a core to itself. When there are more threads that may wait at
 * the same time than cores, a wait yields at once, because what it waits for can't be done before
 * another thread has run. While each of them has a core, it first polls for about a millisecond.
 *
 * <p>A millisecond, because two ranks may have landed on one core while another is idle. Yielding
 * to each other, they would stay there: the kernel leaves alone what has just run. Who is kept from
 * running gets moved. Where that does not help, because other programs use the cores, waits poll
 * for some microseconds instead, most of the time ({@link Insistence}): as long as a peer takes to
 * answer that does run.
 *
 * <p>Streams and the threads of blocks count themselves while they have work, proxies and event
 * loops while they run; others may, with {@link #enter()} and {@link #exit()}. Other processes are
 * taken to be like this one. Thread-safe.
 */
public final class SpinPolicy {
  private static final int CORES = Runtime.getRuntime().availableProcessors();
  private static final int INSISTENT_POLLS = 50_000;
  private static final int BRIEF_POLLS = 200;
  private static final int CROWDED_POLLS = 1;

  private static final Insistence INSISTENCE = new Insistence();

  private static final AtomicInteger THREADS = new AtomicInteger();
  private static volatile int processesOnHost = 1;

  private static volatile boolean crowded;
  private static volatile boolean insistent = true;

  /** How many polls a wait does before it yields; read at every step, written when that changes. */
  private static volatile int pollsBeforeYield = INSISTENT_POLLS;

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
    return crowded;
  }

  static int pollsBeforeYield() {
    return pollsBeforeYield;
  }

  /** A wait for a peer polled {@link #pollsBeforeYield} times, and found nothing. */
  static void inVain() {
    if (!crowded) {
      insistent = INSISTENCE.inVain(System.nanoTime());
      setPolls();
    }
  }

  private static void update(int threads) {
    crowded = (long) Math.max(1, threads) * processesOnHost > CORES;
    setPolls();
  }

  private static void setPolls() {
    int polls = crowded ? CROWDED_POLLS : insistent ? INSISTENT_POLLS : BRIEF_POLLS;
    if (polls != pollsBeforeYield) {
      pollsBeforeYield = polls;
    }
  }
}
