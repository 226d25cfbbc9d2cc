// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.StreamClock;

/** The clock of the thread that runs a stream's tasks. */
final class HostStreamClock implements StreamClock {
  private final LiveHostStream stream;
  private final Mark[] marks;

  HostStreamClock(LiveHostStream stream, int points) {
    this.stream = stream;
    this.marks = new Mark[points];
  }

  @Override
  public void mark(int point) {
    if (marks[point] == null) {
      marks[point] = new Mark();
    }
    stream.enqueue(marks[point]);
  }

  @Override
  public boolean read(int from, int to, long seenNs, long[] times) {
    times[0] = marks[from].atNs;
    times[1] = marks[to].atNs;
    return true;
  }

  @Override
  public void close() {
    // there is nothing to free
  }

  private static final class Mark implements StreamTask {
    /** Written by the stream's thread, and read after a completion. */
    private long atNs;

    @Override
    public void run(LiveHostStream stream) {
      atNs = System.nanoTime();
    }

    @Override
    public boolean isWork() {
      return false;
    }
  }
}
