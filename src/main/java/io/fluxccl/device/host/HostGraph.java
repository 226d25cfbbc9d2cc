// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import java.util.Arrays;
import java.util.List;

/**
 * A recording of a host device: one branch for the recording stream (number 0) and one for each of
 * its branches. A launch runs branch 0 on the launching stream and the others concurrently on
 * streams of their own, so that branches whose kernels wait for each other make progress.
 */
final class HostGraph implements DeviceGraph {
  private final HostDevice device;
  private final String name;
  private final List<List<Step>> branches;

  /** By milestone, the branch that waits for it. */
  private final List<Integer> waitingBranches;

  private final Lifecycle lifecycle;

  // Both guarded by this.
  private LiveHostStream lastStream;
  private Milestone lastFinished;

  HostGraph(HostRecording recording, String name) {
    this.device = recording.device;
    this.name = name;
    this.branches = recording.steps;
    this.waitingBranches = recording.waitingBranches;
    this.lifecycle = new Lifecycle(toString());
    lifecycle.own(() -> device.whenEnqueuedWorkIsDone(recording.buffers()::release));
  }

  @Override
  public HostDevice device() {
    return device;
  }

  /** Enqueues a launch, which starts after all earlier launches. */
  void enqueueOn(LiveHostStream stream) {
    stream.prepareGraphBranches(branches.size() - 1);
    synchronized (this) {
      lifecycle.checkOpen();
      Milestone finished = new Milestone(null);
      Milestone previous = stream == lastStream ? null : lastFinished;
      stream.enqueue(new Branch(new Execution(stream, previous, finished), 0));
      lastStream = stream;
      lastFinished = finished;
    }
  }

  @Override
  public void close() {
    synchronized (this) {
      if (!lifecycle.beginClose()) {
        return;
      }
    }
    device.remove(this);
    lifecycle.closeChildren();
  }

  @Override
  public String toString() {
    return "HostGraph(" + name + ")";
  }

  /** One step of a branch in each launch. */
  interface Step {
    /**
     * Runs the step.
     *
     * @param stream the stream of the branch, whose thread calls this
     * @param execution the launch
     */
    void run(LiveHostStream stream, Execution execution);
  }

  /** One launch: the state that its branches share. */
  final class Execution {
    private final LiveHostStream stream;
    private final Milestone previous;
    private final Milestone finished;
    private final Milestone[] milestones = new Milestone[waitingBranches.size()];

    /**
     * Creates a launch.
     *
     * @param stream that launches it
     * @param previous the end of the previous launch if that ran on another stream, or null
     * @param finished passed at the end of this launch
     */
    private Execution(LiveHostStream stream, Milestone previous, Milestone finished) {
      this.stream = stream;
      this.previous = previous;
      this.finished = finished;
    }

    /** Starts all branches and runs branch 0. */
    private void runAll() {
      boolean mayBegin = previous == null || previous.await(stream, false);
      // Checked before other branches start: they run to their end, even if this stream is closed.
      if (!mayBegin || stream.isClosed()) {
        stream.noteDropped();
        if (mayBegin) {
          finished.pass(null);
        } else {
          previous.passOn(finished); // the next launch must still wait for the previous one
        }
        return;
      }
      try {
        Arrays.setAll(milestones, i -> new Milestone(stream.graphBranch(waitingBranches.get(i))));
        for (int branch = 1; branch < branches.size(); branch++) {
          stream.graphBranch(branch).enqueue(new Branch(this, branch));
        }
        runBranch(0, stream);
      } finally {
        finished.pass(null);
      }
    }

    private void runBranch(int number, LiveHostStream on) {
      for (Step step : branches.get(number)) {
        step.run(on, this);
      }
    }

    @Override
    public String toString() {
      return "graph " + name;
    }

    /** Runs a task on the stream of a branch. */
    void run(StreamTask task, LiveHostStream on) {
      if (stream.isClosed()) {
        on.noteDropped();
      } else if (!stream.hasStopped()) {
        on.run(task);
      }
    }

    /** Passes a milestone on the stream of a branch. */
    void signal(int milestone, LiveHostStream on) {
      milestones[milestone].run(on);
    }

    /**
     * Waits for a milestone, even if the launching stream was closed, because every branch ends.
     */
    void await(int milestone, LiveHostStream on) {
      milestones[milestone].await(on, true);
      on.noteFailureOf(milestones[milestone]);
    }
  }

  /** One branch of one launch, as a task of the stream that it runs on. */
  private record Branch(Execution execution, int number) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      if (number == 0) {
        execution.runAll();
      } else {
        stream.forgetFailure(); // the previous launch has reported it
        execution.runBranch(number, stream);
      }
    }

    /**
     * Runs even if the stream is closed, so that streams that wait for the launch continue. Each
     * step drops its work.
     */
    @Override
    public boolean survivesClose() {
      return true;
    }
  }
}
