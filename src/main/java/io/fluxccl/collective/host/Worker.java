// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.host.HostAlgorithm.HostCall;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.device.host.SpinWait;

/**
 * One kernel thread's part of every call: its share of each message, with pipes of its own to the
 * peers' workers of the same number. The workers of a rank share nothing and don't wait for each
 * other. A launch may run a worker on another operating-system thread than the launch before.
 */
final class Worker {
  /** The least bytes of a message that several workers share. */
  private static final long SHARE_LIMIT = 128 << 10;

  private final int rank;
  private final int worker;
  private final int workers;
  private final PipeGroup group;
  private final Transfer[] transfers; // in the order rank + 1, rank + 2, ...
  private final Reductions reductions;

  /** Steps of transfers that moved something. */
  private long progress;

  Worker(int rank, int worker, int workers, MappedPipe[] pipes, boolean[] sameProcess) {
    this.rank = rank;
    this.worker = worker;
    this.workers = workers;
    this.group = new PipeGroup(pipes, rank);
    int nRanks = pipes.length;
    this.transfers = new Transfer[nRanks - 1];
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      transfers[i - 1] = new Transfer(rank, pipes[peer], sameProcess[peer]);
    }
    this.reductions = new Reductions(rank, pipes, group, sameProcess);
  }

  /** Returns how many workers share a message of a size; the same at both ends. */
  static int workersFor(long bytes, int workers) {
    return bytes >= SHARE_LIMIT ? workers : 1;
  }

  /** Unmaps the peers' memory, after the last call. */
  void close() {
    for (Transfer transfer : transfers) {
      transfer.close();
    }
    reductions.close();
  }

  /** Runs this worker's part of a call. Returns early if the communicator is aborted. */
  void run(KernelThread thread, HostCall call) {
    CollectiveCall what = call.call();
    if (what.collective() == Collective.BARRIER) {
      if (worker == 0) {
        group.begin(call.bound().signature());
        group.barrier();
      }
    } else if (what.collective().reduces()) {
      int parts = workersFor(what.countBytes(), workers);
      long from = CacheLines.begin(what.countBytes(), parts, worker);
      long to = CacheLines.begin(what.countBytes(), parts, worker + 1);
      if (from < to) {
        group.begin(call.bound().signature());
        reductions.run(thread.reduction(), call, from, to);
      }
    } else {
      exchange(call, thread.abortAddress());
    }
  }

  private void exchange(HostCall call, long abort) {
    for (Transfer transfer : transfers) {
      transfer.begin(call, worker, workers);
    }
    // Send to peers first: they wait for it while this rank copies its own part.
    int open = advance();
    copyOwn(call);
    int step = 0;
    while (open >= 0) {
      long before = progress;
      int waitedFor = open;
      open = advance();
      if (progress != before) {
        step = 0;
      } else if (open >= 0) {
        step = SpinWait.step(step, abort, waitedFor);
        if (step < 0) {
          return;
        }
      }
    }
  }

  /** Advances every transfer as far as it can; returns a peer whose transfer is open, or -1. */
  private int advance() {
    int open = -1;
    for (Transfer transfer : transfers) {
      if (!transfer.isDone()) {
        if (transfer.step()) {
          progress++;
        }
        if (!transfer.isDone()) {
          open = transfer.peer();
        }
      }
    }
    return open;
  }

  private void copyOwn(HostCall call) {
    CollectiveCall what = call.call();
    long bytes = Math.min(what.sendBytes(rank, rank), what.receiveBytes(rank, rank));
    int parts = workersFor(bytes, workers);
    long source = call.input() + what.sendOffset(rank);
    long target = call.output() + what.receiveOffset(rank);
    long from = CacheLines.begin(bytes, parts, worker);
    long to = CacheLines.begin(bytes, parts, worker + 1);
    if (from < to && source != target) {
      HostMemory.copy(target + from, source + from, to - from);
    }
  }
}
