package io.fluxccl.device.host;

import io.fluxccl.concurrent.SpinPolicy;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** One thread of a block. Runs what the team that leased it assigns. */
final class BlockWorker extends Thread {
  private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final BlockWorkers home;
  private KernelThread kernelThread;

  /** The work to run; cleared by this thread once it has begun. */
  private volatile BlockTeam assigned;

  private volatile boolean parked;
  private volatile boolean ended;

  BlockWorker(BlockWorkers home, String name) {
    super(name);
    this.home = home;
    setDaemon(true);
  }

  /** Takes its number in the block; called before anything is assigned. */
  void become(int threadIdx) {
    if (kernelThread == null || kernelThread.threadIdx() != threadIdx) {
      // Seen by this thread through the volatile store in assign().
      kernelThread = new KernelThread(threadIdx);
    }
  }

  void assign(BlockTeam team) {
    assigned = team;
    if (parked) {
      LockSupport.unpark(this);
    }
  }

  void end() {
    ended = true;
    LockSupport.unpark(this);
  }

  @Override
  public void run() {
    int polls = 0;
    while (!ended) {
      BlockTeam team = assigned;
      if (team != null) {
        assigned = null;
        team.runThread(kernelThread);
        polls = 0;
      } else if (polls < SpinPolicy.pollsBeforeYield()) {
        Thread.onSpinWait();
        polls++;
      } else if (parkUntilAssigned()) {
        return;
      }
    }
  }

  /** Whether this thread had nothing to do for so long that it should end. */
  private boolean parkUntilAssigned() {
    Thread.interrupted(); // a kernel may have left it set; parking would return at once
    parked = true;
    // Pairs with assign(): it stores the team, then looks at parked; here it is the other way
    // round.
    boolean nothingCame = false;
    if (assigned == null && !ended) {
      long start = System.nanoTime();
      LockSupport.parkNanos(this, IDLE_NANOS);
      nothingCame = System.nanoTime() - start >= IDLE_NANOS && assigned == null;
    }
    parked = false;
    return nothingCame && home.retire(this);
  }
}
