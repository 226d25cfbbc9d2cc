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

/** A recording while it goes on. For the thread that began it. */
final class HostRecording {
  private final HostDevice device;
  private final Thread thread = Thread.currentThread();
  private final List<List<GraphStep>> lanes = new ArrayList<>();
  private final List<Integer> waitingLanes = new ArrayList<>();
  private final RetainedBuffers buffers = new RetainedBuffers();
  private volatile boolean over;

  private HostRecording(HostDevice device) {
    this.device = device;
  }

  static HostGraph record(HostDevice device, String name, Consumer<? super DeviceStream> work) {
    HostRecording recording = new HostRecording(device);
    try {
      Stream main = recording.newLane("recording " + name);
      work.accept(main);
      for (int lane = 1; lane < recording.lanes.size(); lane++) {
        recording.addWait(0, lane); // a launch is done when all its branches are
      }
    } catch (RuntimeException | Error e) {
      recording.buffers.release();
      throw e;
    } finally {
      recording.over = true;
    }
    GraphStep[][] lanes =
        recording.lanes.stream()
            .map(lane -> lane.toArray(new GraphStep[0]))
            .toArray(GraphStep[][]::new);
    int[] waitingLanes = recording.waitingLanes.stream().mapToInt(Integer::intValue).toArray();
    return new HostGraph(device, name, lanes, waitingLanes, recording.buffers);
  }

  private Stream newLane(String name) {
    lanes.add(new ArrayList<>());
    return new Stream(name, lanes.size() - 1);
  }

  private void addWait(int waitingLane, int lane) {
    int milestone = waitingLanes.size();
    waitingLanes.add(waitingLane);
    lanes.get(lane).add(new GraphStep.Signal(milestone));
    lanes.get(waitingLane).add(new GraphStep.Await(milestone));
  }

  /** What the recorder enqueues on. */
  private final class Stream extends HostStream {
    private final int lane;
    private final Map<String, Stream> branches = new HashMap<>();

    Stream(String name, int lane) {
      super(device, name);
      this.lane = lane;
    }

    private HostRecording recording() {
      return HostRecording.this;
    }

    private void requireRecording() {
      if (over) {
        throw new InvalidUsage(this + " is over");
      }
      if (Thread.currentThread() != thread) {
        throw new InvalidUsage(
            this + " is for thread " + thread.getName() + ", which began it, only");
      }
    }

    @Override
    void enqueue(StreamTask task) {
      requireRecording();
      lanes.get(lane).add(new GraphStep.Work(task));
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
        addWait(lane, ((Stream) other).lane);
      }
      return this;
    }

    @Override
    public HostStream branch(String name) {
      requireRecording();
      Stream branch = branches.get(name);
      if (branch == null) {
        branch = newLane(name() + "-" + name);
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
