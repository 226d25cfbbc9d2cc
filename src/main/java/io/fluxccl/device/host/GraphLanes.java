package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import java.util.ArrayList;
import java.util.List;

/**
 * The streams on which branches of graphs run that are launched on one stream: that stream's, one
 * launch at a time. Nothing else is ever enqueued on them, so that a launch that waits for them
 * waits for itself only. They end after the stream's thread has, because a launch that has begun
 * gets to its end, even though it drops what is left when the stream is closed.
 */
final class GraphLanes {
  private final LiveHostStream owner;

  // Both guarded by this.
  private final List<LiveHostStream> lanes = new ArrayList<>();
  private boolean closed;

  GraphLanes(LiveHostStream owner) {
    this.owner = owner;
  }

  /** Makes sure that there are so many, with threads. Called before a launch is enqueued. */
  synchronized void prepare(int count) {
    if (closed) {
      throw new InvalidUsage("stream " + owner.name() + " is closed");
    }
    while (lanes.size() < count) {
      LiveHostStream lane =
          new LiveHostStream(owner.device(), owner.name() + "-graph" + (lanes.size() + 1));
      if (owner.failsFast()) {
        lane.failFast();
      }
      lane.start();
      lanes.add(lane);
    }
  }

  /** The one of that number, from 0. */
  synchronized LiveHostStream get(int number) {
    return lanes.get(number);
  }

  synchronized void close() {
    closed = true;
    lanes.forEach(LiveHostStream::close);
  }
}
