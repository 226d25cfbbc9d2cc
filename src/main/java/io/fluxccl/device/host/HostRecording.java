// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Recording;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** A recording in progress. Only the thread that began it may use it. */
final class HostRecording extends Recording {
  final HostDevice device;
  final List<List<HostGraph.Step>> steps = new ArrayList<>();
  final List<Integer> waitingBranches = new ArrayList<>();

  private HostRecording(HostDevice device, String name) {
    super(name);
    this.device = device;
  }

  static HostGraph record(HostDevice device, String name, Consumer<? super DeviceStream> work) {
    HostRecording recording = new HostRecording(device, name);
    try {
      Stream main = recording.newBranch("recording " + name);
      work.accept(main);
      for (int branch = 1; branch < recording.steps.size(); branch++) {
        recording.addWait(0, branch); // a launch is done when all its branches are
      }
    } catch (RuntimeException | Error e) {
      recording.buffers().release();
      throw e;
    } finally {
      recording.lifecycle.close();
    }
    return new HostGraph(recording, name);
  }

  private Stream newBranch(String name) {
    steps.add(new ArrayList<>());
    return new Stream(name, steps.size() - 1);
  }

  private void addWait(int waitingBranch, int branch) {
    int milestone = waitingBranches.size();
    waitingBranches.add(waitingBranch);
    steps.get(branch).add((stream, execution) -> execution.signal(milestone, stream));
    steps.get(waitingBranch).add((stream, execution) -> execution.await(milestone, stream));
  }

  /** A stream that records. */
  private final class Stream extends HostStream {
    private final int number;

    Stream(String name, int number) {
      super(HostRecording.this.device, name, HostRecording.this);
      this.number = number;
    }

    @Override
    void enqueue(StreamTask task) {
      checkOpen();
      steps.get(number).add((stream, execution) -> execution.run(task, stream));
    }

    @Override
    protected HostStream enqueueWait(HostStream other) {
      addWait(number, ((Stream) other).number);
      return this;
    }

    @Override
    protected HostStream newBranch(String branchName) {
      return HostRecording.this.newBranch(branchName).waitFor(this);
    }
  }
}
