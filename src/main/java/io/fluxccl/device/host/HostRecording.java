package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.RetainedBuffers;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** A recording in progress. For the thread that began it. */
final class HostRecording {
  private final HostDevice device;
  private final Thread thread = Thread.currentThread();
  private final List<List<HostGraph.Step>> steps = new ArrayList<>();
  private final List<Integer> waitingBranches = new ArrayList<>();
  private final RetainedBuffers buffers = new RetainedBuffers();
  private volatile boolean over;

  private HostRecording(HostDevice device) {
    this.device = device;
  }

  static HostGraph record(HostDevice device, String name, Consumer<? super DeviceStream> work) {
    HostRecording recording = new HostRecording(device);
    try {
      Stream main = recording.newBranch("recording " + name);
      work.accept(main);
      for (int branch = 1; branch < recording.steps.size(); branch++) {
        recording.addWait(0, branch); // a launch is done when all its branches are
      }
    } catch (RuntimeException | Error e) {
      recording.buffers.release();
      throw e;
    } finally {
      recording.over = true;
    }
    HostGraph.Step[][] steps =
        recording.steps.stream()
            .map(branch -> branch.toArray(new HostGraph.Step[0]))
            .toArray(HostGraph.Step[][]::new);
    int[] waiting = recording.waitingBranches.stream().mapToInt(Integer::intValue).toArray();
    return new HostGraph(device, name, steps, waiting, recording.buffers);
  }

  private Stream newBranch(String name) {
    steps.add(new ArrayList<>());
    return new Stream(name, steps.size() - 1);
  }

  private void addWait(int waitingBranch, int branch) {
    int milestone = waitingBranches.size();
    waitingBranches.add(waitingBranch);
    steps.get(branch).add(new HostGraph.Signal(milestone));
    steps.get(waitingBranch).add(new HostGraph.Await(milestone));
  }

  /** A stream that records. */
  private final class Stream extends HostStream {
    private final int number;
    private final Map<String, Stream> branches = new HashMap<>();

    Stream(String name, int number) {
      super(device, name);
      this.number = number;
    }

    private HostRecording recording() {
      return HostRecording.this;
    }

    private void requireRecording() {
      if (over) {
        throw new InvalidUsage(this + " is over");
      }
      if (Thread.currentThread() != thread) {
        throw InvalidUsage.of("%s is for thread %s only, which began it", this, thread.getName());
      }
    }

    @Override
    void enqueue(StreamTask task) {
      requireRecording();
      steps.get(number).add(new HostGraph.Work(task));
    }

    @Override
    void keep(DeviceBuffer buffer) {
      requireRecording();
      buffers.add(buffer);
    }

    @Override
    void keep(KernelArgs args) {
      requireRecording();
      buffers.addAll(args);
    }

    @Override
    public HostStream waitFor(DeviceStream other) {
      requireRecording();
      if (!(other instanceof Stream) || ((Stream) other).recording() != recording()) {
        throw cannotWaitFor(other, "that one is not of this recording");
      }
      if (other != this) {
        addWait(number, ((Stream) other).number);
      }
      return this;
    }

    @Override
    public HostStream branch(String name) {
      requireRecording();
      Stream branch = branches.get(name);
      if (branch == null) {
        branch = newBranch(name() + "-" + name);
        branches.put(name, branch);
        branch.waitFor(this);
      }
      return branch;
    }

    @Override
    public HostStream launch(DeviceGraph graph) {
      throw refused("launches no graph");
    }

    @Override
    public CompletableFuture<Void> completion() {
      throw refused("has no completion; launch the graph and ask that stream");
    }

    @Override
    public void close() {
      throw refused("can't be closed; it ends when what records returns");
    }

    private InvalidUsage refused(String why) {
      return new InvalidUsage(this + " " + why);
    }
  }
}
