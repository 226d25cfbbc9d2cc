package io.fluxccl.device.host;

/** One launch of a graph: what its lanes share. The first lane runs on the launching stream. */
final class GraphLaunch {
  private final HostGraph graph;
  private final LiveHostStream stream;
  private final Milestone previous;
  private final Milestone finished;
  private Milestone[] milestones;

  /**
   * @param stream that launches it
   * @param previous the end of the launch before, if that is on another stream; or null
   * @param finished passed at the end of this one
   */
  GraphLaunch(HostGraph graph, LiveHostStream stream, Milestone previous, Milestone finished) {
    this.graph = graph;
    this.stream = stream;
    this.previous = previous;
    this.finished = finished;
  }

  /** What the launching stream is to do. */
  StreamTask task() {
    return new Lane(0);
  }

  /** Whether the launching stream was closed: then no further work begins. */
  boolean isAbandoned() {
    return stream.isClosed();
  }

  /** Whether the launching stream has failed and does no more work. */
  boolean hasStopped() {
    return stream.hasStopped();
  }

  Milestone milestone(int number) {
    return milestones[number];
  }

  private void runAll() {
    boolean isTurn = previous == null || previous.await(stream, false);
    // Looked at before other lanes begin: they end after this stream, not when it is closed.
    if (!isTurn || isAbandoned()) {
      graph.dropOn(stream);
      if (isTurn) {
        finished.pass(null);
      } else {
        previous.passOn(finished); // the next launch still has to wait for that one
      }
      return;
    }
    try {
      milestones = graph.newMilestones(stream);
      for (int lane = 1; lane < graph.laneCount(); lane++) {
        stream.graphLanes().get(lane - 1).enqueue(new Lane(lane));
      }
      graph.runLane(0, stream, this);
    } finally {
      finished.pass(null);
    }
  }

  private final class Lane extends StreamTask {
    private final int number;

    Lane(int number) {
      this.number = number;
    }

    @Override
    void run(LiveHostStream lane) {
      if (number == 0) {
        runAll();
      } else {
        lane.forgetFailure(); // of the launch before, which has reported it
        graph.runLane(number, lane, GraphLaunch.this);
      }
    }

    /** So that whoever waits for it goes on; the work is dropped piece by piece. */
    @Override
    boolean survivesClose() {
      return true;
    }

    @Override
    String description() {
      return "graph " + graph.name();
    }
  }
}
