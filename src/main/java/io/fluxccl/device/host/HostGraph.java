// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Recording;
import io.fluxccl.device.host.HostStream.Live;
import io.fluxccl.device.host.HostStream.Milestone;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * A recording of a host device: one branch for the recording stream (number 0) and one for each of
 * its branches. A launch runs branch 0 on the launching stream and the others concurrently on
 * streams of their own, so that branches whose kernels wait for each other make progress.
 */
final class HostGraph implements DeviceGraph {
  private final HostDevice device;
  private final String name;
  private final List<List<Step>> branches = new ArrayList<>();

  /** By milestone, the branch that waits for it. */
  private final List<Integer> waitingBranches = new ArrayList<>();

  private final Lifecycle lifecycle;

  // Both guarded by this.
  private Live lastStream;
  private Milestone lastFinished;

  private HostGraph(HostDevice device, String name) {
    this.device = device;
    this.name = name;
    this.lifecycle = new Lifecycle(toString());
  }

  /** Records a graph. */
  static HostGraph record(HostDevice device, String name, Consumer<? super DeviceStream> work) {
    HostGraph graph = new HostGraph(device, name);
    Recorder recorder = graph.new Recorder();
    try {
      work.accept(recorder.newStream("recording " + name));
      for (int branch = 1; branch < graph.branches.size(); branch++) {
        graph.addWait(0, branch); // a launch is done when all its branches are
      }
      return graph;
    } catch (RuntimeException | Error e) {
      graph.close();
      throw e;
    } finally {
      recorder.end();
    }
  }

  private void addWait(int waitingBranch, int branch) {
    int milestone = waitingBranches.size();
    waitingBranches.add(waitingBranch);
    branches.get(branch).add((stream, launch) -> launch.milestones[milestone].run(stream));
    branches.get(waitingBranch).add((stream, launch) -> launch.await(milestone, stream));
  }

  @Override
  public HostDevice device() {
    return device;
  }

  /** Enqueues a launch, which starts after all earlier launches. */
  void enqueueOn(Live stream) {
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

  /** A recording in progress. Only the thread that began it may use it. */
  private final class Recorder extends Recording {
    Recorder() {
      super(name);
      HostGraph.this.lifecycle.own(() -> device.whenEnqueuedWorkIsDone(buffers()::release));
    }

    RecordingStream newStream(String streamName) {
      branches.add(new ArrayList<>());
      return new RecordingStream(this, streamName, branches.size() - 1);
    }

    void end() {
      lifecycle.close();
    }
  }

  private final class RecordingStream extends HostStream {
    private final Recorder recorder;
    private final int number;

    RecordingStream(Recorder recorder, String name, int number) {
      super(HostGraph.this.device, name, recorder);
      this.recorder = recorder;
      this.number = number;
    }

    @Override
    void enqueue(Task task) {
      checkOpen();
      branches.get(number).add((stream, launch) -> launch.run(task, stream));
    }

    @Override
    protected HostStream enqueueWait(HostStream other) {
      addWait(number, ((RecordingStream) other).number);
      return this;
    }

    @Override
    protected HostStream newBranch(String branchName) {
      return recorder.newStream(branchName).waitFor(this);
    }
  }

  /** One step of a branch in each launch. */
  private interface Step {
    /**
     * Runs the step.
     *
     * @param stream the stream of the branch, whose thread calls this
     * @param launch the launch
     */
    void run(Live stream, Execution launch);
  }

  /** One launch: the state that its branches share. */
  private final class Execution {
    private final Live stream;
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
    Execution(Live stream, Milestone previous, Milestone finished) {
      this.stream = stream;
      this.previous = previous;
      this.finished = finished;
    }

    /** Starts all branches and runs branch 0. */
    private void runAll() {
      boolean mayBegin = previous == null || previous.await(stream, false);
      // Checked before other branches start: they run to their end, even if this stream is closed.
      if (!mayBegin || stream.isClosed()) {
        stream.dropped = true;
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

    private void runBranch(int number, Live on) {
      for (Step step : branches.get(number)) {
        step.run(on, this);
      }
    }

    /** Runs a task on the stream of a branch. */
    private void run(HostStream.Task task, Live on) {
      if (stream.isClosed()) {
        on.dropped = true;
      } else if (!stream.stopped) {
        on.run(task);
      }
    }

    /**
     * Waits for a milestone, even if the launching stream was closed, because every branch ends.
     */
    private void await(int milestone, Live on) {
      milestones[milestone].await(on, true);
      on.noteFailureOf(milestones[milestone]);
    }

    @Override
    public String toString() {
      return "graph " + name;
    }
  }

  /**
   * One branch of one launch, as a task of the stream that it runs on. Runs even if the stream is
   * closed, so that streams that wait for the launch continue. Each step drops its work.
   */
  private record Branch(Execution execution, int number) implements HostStream.Always {
    @Override
    public void run(Live stream) {
      if (number == 0) {
        execution.runAll();
      } else {
        stream.forgetFailure(); // the previous launch has reported it
        execution.runBranch(number, stream);
      }
    }
  }
}
