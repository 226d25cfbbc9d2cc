package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.RetainedBuffers;

/**
 * What was recorded on a host device: a lane for the recording stream and one for each branch. A
 * launch runs the first on the launching stream and the others beside it, so that lanes that wait
 * for each other's kernels get on.
 */
final class HostGraph implements DeviceGraph {
  private final HostDevice device;
  private final String name;
  private final GraphStep[][] lanes;

  /** For each milestone the lane that waits for it. */
  private final int[] waitingLanes;

  private final RetainedBuffers buffers;

  // All guarded by this.
  private LiveHostStream lastStream;
  private Milestone lastFinished;
  private boolean closed;

  HostGraph(
      HostDevice device,
      String name,
      GraphStep[][] lanes,
      int[] waitingLanes,
      RetainedBuffers buffers) {
    this.device = device;
    this.name = name;
    this.lanes = lanes;
    this.waitingLanes = waitingLanes;
    this.buffers = buffers;
  }

  @Override
  public HostDevice device() {
    return device;
  }

  String name() {
    return name;
  }

  int laneCount() {
    return lanes.length;
  }

  /** Enqueues a launch, behind the launches before. */
  void enqueueOn(LiveHostStream stream) {
    if (lanes.length > 1) {
      stream.graphLanes().prepare(lanes.length - 1);
    }
    synchronized (this) {
      if (closed) {
        throw new InvalidUsage(this + " is closed");
      }
      Milestone finished = new Milestone(null);
      Milestone previous = stream == lastStream ? null : lastFinished;
      stream.enqueue(new GraphLaunch(this, stream, previous, finished).task());
      lastStream = stream;
      lastFinished = finished;
    }
  }

  /** Those of one launch, whose first lane runs on the given stream. */
  Milestone[] newMilestones(LiveHostStream stream) {
    Milestone[] milestones = new Milestone[waitingLanes.length];
    for (int i = 0; i < milestones.length; i++) {
      int lane = waitingLanes[i];
      milestones[i] = new Milestone(lane == 0 ? stream : stream.graphLanes().get(lane - 1));
    }
    return milestones;
  }

  void runLane(int number, LiveHostStream lane, GraphLaunch launch) {
    for (GraphStep step : lanes[number]) {
      step.run(lane, launch);
    }
  }

  /** Lets a stream know that it does not do all this. */
  void dropOn(LiveHostStream stream) {
    for (GraphStep[] lane : lanes) {
      for (GraphStep step : lane) {
        step.drop(stream);
      }
    }
  }

  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    device.remove(this);
    device.whenEnqueuedWorkIsDone(buffers::release);
  }

  @Override
  public String toString() {
    return "HostGraph(" + name + ")";
  }
}
