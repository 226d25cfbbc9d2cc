package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.device.host.SpinWait;

/**
 * What one kernel thread does of every call: its share of each message, with pipes of its own to
 * the peers' threads of the same number. Threads of a rank share nothing and don't wait for each
 * other. Which thread of the operating system it is may change from launch to launch, not during
 * one.
 */
final class Strand {
  /** From so many bytes on a message is shared among the strands. */
  static final long SHARE_LIMIT = 128 << 10;

  private final int rank;
  private final int strand;
  private final int strands;
  private final Pipe[] pipes; // null for this rank
  private final Flow[] flows; // in the order rank + 1, rank + 2, ...
  private final Reductions reductions;

  /** Steps of flows that did something. */
  private long progress;

  Strand(int rank, int strand, int strands, Pipe[] pipes, boolean[] sameProcess) {
    this.rank = rank;
    this.strand = strand;
    this.strands = strands;
    this.pipes = pipes;
    int nRanks = pipes.length;
    this.flows = new Flow[nRanks - 1];
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      flows[i - 1] = new Flow(rank, pipes[peer], sameProcess[peer]);
    }
    this.reductions = new Reductions(rank, pipes, sameProcess);
  }

  /** Among how many of the strands a message of that size is shared; the same at both ends. */
  static int strandsFor(long bytes, int strands) {
    return bytes >= SHARE_LIMIT ? strands : 1;
  }

  /** Lets go of what was mapped; behind the last call. */
  void close() {
    for (Flow flow : flows) {
      flow.close();
    }
    reductions.close();
  }

  /** Runs a call, or this strand's part of it. Returns early when the communicator is aborted. */
  void run(KernelThread thread, HostCall call) {
    CollectiveCall what = call.call();
    long abort = thread.abortAddress();
    if (what.collective() == Collective.BARRIER) {
      if (strand == 0) {
        Pipe.meet(pipes, rank, abort);
      }
    } else if (what.collective().reduces()) {
      int parts = strandsFor(what.countBytes(), strands);
      if (strand < parts) {
        long from = Lines.begin(what.countBytes(), parts, strand);
        long to = Lines.begin(what.countBytes(), parts, strand + 1);
        if (from < to) {
          reductions.run(thread.reduction(), call, from, to, abort);
        }
      }
    } else {
      exchange(call, abort);
    }
  }

  private void exchange(HostCall call, long abort) {
    for (Flow flow : flows) {
      flow.begin(call, strand, strands);
    }
    // What others wait for goes first.
    int open = advance();
    keep(call);
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

  /** Lets every flow do what it can; gives a peer whose flow is not done, or -1. */
  private int advance() {
    int open = -1;
    for (Flow flow : flows) {
      if (!flow.isDone()) {
        if (flow.step()) {
          progress++;
        }
        if (!flow.isDone()) {
          open = flow.peer();
        }
      }
    }
    return open;
  }

  /** Copies what stays on this rank. */
  private void keep(HostCall call) {
    CollectiveCall what = call.call();
    long bytes = Math.min(what.sendBytes(rank, rank), what.receiveBytes(rank, rank));
    int parts = strandsFor(bytes, strands);
    long source = call.input() + what.sendOffset(rank);
    long target = call.output() + what.receiveOffset(rank);
    if (bytes > 0 && strand < parts && source != target) {
      long from = Lines.begin(bytes, parts, strand);
      long to = Lines.begin(bytes, parts, strand + 1);
      HostMemory.copy(target + from, source + from, to - from);
    }
  }
}
