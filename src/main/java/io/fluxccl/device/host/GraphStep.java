package io.fluxccl.device.host;

/** One thing that a lane of a graph does in each launch. Immutable. */
abstract class GraphStep {
  /**
   * Does it.
   *
   * @param lane the stream that the lane runs on, on whose thread this is
   * @param launch which launch
   */
  abstract void run(LiveHostStream lane, GraphLaunch launch);

  /** Tells a stream that it is not done. */
  void drop(LiveHostStream stream) {}

  static final class Work extends GraphStep {
    private final StreamTask task;

    Work(StreamTask task) {
      this.task = task;
    }

    @Override
    void run(LiveHostStream lane, GraphLaunch launch) {
      if (launch.isAbandoned()) {
        lane.drop(task);
      } else if (!launch.hasStopped()) {
        lane.run(task);
      }
    }

    @Override
    void drop(LiveHostStream stream) {
      stream.drop(task);
    }
  }

  static final class Signal extends GraphStep {
    private final int milestone;

    Signal(int milestone) {
      this.milestone = milestone;
    }

    @Override
    void run(LiveHostStream lane, GraphLaunch launch) {
      launch.milestone(milestone).run(lane);
    }
  }

  /** Every lane gets to its end, also when the launch is abandoned: so this does not give up. */
  static final class Await extends GraphStep {
    private final int milestone;

    Await(int milestone) {
      this.milestone = milestone;
    }

    @Override
    void run(LiveHostStream lane, GraphLaunch launch) {
      Milestone awaited = launch.milestone(milestone);
      awaited.await(lane, true);
      if (awaited.failure() != null) {
        lane.note(awaited.failure());
      }
    }
  }
}
