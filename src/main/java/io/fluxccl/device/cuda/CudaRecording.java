package io.fluxccl.device.cuda;

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
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * A recording while it goes on, by the driver's stream capture: streams of its own, on which the
 * driver keeps what it is given. For the thread that began it.
 *
 * <p>The capture is relaxed: it does not forbid its thread to allocate memory or to load kernels
 * meanwhile, which then happens at once, as on any other device.
 */
final class CudaRecording {
  private final CudaDevice device;
  private final PrimaryContext context;
  private final String name;
  private final Thread thread = Thread.currentThread();
  private final List<Stream> streams = new ArrayList<>();
  private final RetainedBuffers buffers = new RetainedBuffers();
  private boolean capturing;
  private volatile boolean over;

  private CudaRecording(CudaDevice device, String name) {
    this.device = device;
    this.context = device.context();
    this.name = name;
  }

  /** Records, instantiates and begins to upload a graph. Waits for no work. */
  static CudaGraph record(CudaDevice device, String name, Consumer<? super DeviceStream> work) {
    CudaRecording recording = new CudaRecording(device, name);
    device.context().retain(); // for the graph
    try {
      return recording.graph(recording.capture(work));
    } catch (RuntimeException | Error e) {
      recording.buffers.release();
      device.context().release();
      throw e;
    } finally {
      recording.discard();
    }
  }

  private CUgraph capture(Consumer<? super DeviceStream> work) {
    Stream main = newStream("recording " + name);
    check(
        JCudaDriver.cuStreamBeginCapture(
            main.stream, CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture");
    capturing = true;
    work.accept(main);
    for (Stream branch : streams) {
      main.waitFor(branch); // a launch is done when all its branches are
    }
    context.makeCurrent();
    CUgraph graph = new CUgraph();
    capturing = false;
    check(JCudaDriver.cuStreamEndCapture(main.stream, graph), "cuStreamEndCapture");
    over = true;
    return graph;
  }

  private CudaGraph graph(CUgraph graph) {
    CUgraphExec handle = new CUgraphExec();
    int result = JCudaDriver.cuGraphInstantiate(handle, graph, 0);
    JCudaDriver.cuGraphDestroy(graph);
    check(result, "cuGraphInstantiate");
    StreamEvent uploaded = new StreamEvent(context);
    try {
      upload(handle, uploaded);
      return new CudaGraph(device, name, handle, uploaded, buffers);
    } catch (RuntimeException | Error e) {
      uploaded.destroy();
      JCudaDriver.cuGraphExecDestroy(handle);
      throw e;
    }
  }

  /** On the stream that recorded, which records no more. */
  private void upload(CUgraphExec handle, StreamEvent uploaded) {
    CUstream stream = streams.get(0).stream;
    boolean locked = context.enqueueLock().tryLock();
    try {
      check(JCudaDriver.cuGraphUpload(handle, stream), "cuGraphUpload");
      check(uploaded.record(stream), "cuEventRecord");
    } finally {
      if (locked) {
        context.enqueueLock().unlock();
      }
    }
  }

  private void check(int result, String call) {
    context.check(result, call + " of graph " + name);
  }

  /** Ends what is not ended; the driver keeps streams until their work is done. */
  private void discard() {
    over = true;
    if (context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
      return; // gone, with all that is in it
    }
    if (capturing) {
      CUgraph discarded = new CUgraph();
      int result = JCudaDriver.cuStreamEndCapture(streams.get(0).stream, discarded);
      if (result == CUresult.CUDA_SUCCESS) {
        JCudaDriver.cuGraphDestroy(discarded);
      }
    }
    for (Stream stream : streams) {
      stream.event.destroy();
      JCudaDriver.cuStreamDestroy(stream.stream);
    }
  }

  private Stream newStream(String streamName) {
    Stream made = new Stream(streamName, context.createStream(false));
    streams.add(made);
    return made;
  }

  /** The stream on which the recorder enqueues. */
  private final class Stream extends CudaStream {
    private final Map<String, Stream> branches = new HashMap<>();

    Stream(String name, CUstream stream) {
      super(CudaRecording.this.device, name, stream);
    }

    private CudaRecording recording() {
      return CudaRecording.this;
    }

    @Override
    void ready() {
      requireRecording();
      context.makeCurrent();
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
    void keep(DeviceBuffer buffer) {
      requireRecording();
      buffers.add(buffer);
    }

    @Override
    void keep(KernelArgs args) {
      buffers.addAll(args);
    }

    @Override
    public CudaStream waitFor(DeviceStream other) {
      requireRecording();
      if (!(other instanceof Stream) || ((Stream) other).recording() != recording()) {
        throw cannotWaitFor(other, "that one is not of this recording");
      }
      if (other != this) {
        enqueueWait(((Stream) other).recordEvent());
      }
      return this;
    }

    @Override
    public CudaStream branch(String branchName) {
      requireRecording();
      Stream branch = branches.get(branchName);
      if (branch == null) {
        branch = newStream(name + "-" + branchName);
        branches.put(branchName, branch);
        branch.waitFor(this); // which is what makes it a part of the capture
      }
      return branch;
    }

    @Override
    public CudaStream launch(DeviceGraph graph) {
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

    @Override
    public void requireHealthy() {
      requireRecording();
    }

    private InvalidUsage refused(String why) {
      return new InvalidUsage(this + " " + why);
    }
  }
}
