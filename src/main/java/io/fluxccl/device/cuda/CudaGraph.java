// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Recording;
import io.fluxccl.device.RetainedBuffers;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * A graph on one GPU, ready to launch. After a close, it is destroyed once the work enqueued on the
 * device's streams is done. The driver allows one thread at a time to use it, and runs one launch
 * at a time.
 */
final class CudaGraph implements DeviceGraph {
  private final CudaDevice device;
  private final PrimaryContext context;
  private final String name;
  private final Lifecycle lifecycle;
  private final CUgraphExec handle = new CUgraphExec();

  /** Recorded after the upload; null once that is known to be done. Guarded by this. */
  private CUevent uploaded;

  private CudaGraph(CudaDevice device, String name) {
    this.device = device;
    this.context = device.context();
    this.name = name;
    this.lifecycle = new Lifecycle(toString());
  }

  /** Records, instantiates and begins to upload a graph. Waits for no work. */
  static CudaGraph record(CudaDevice device, String name, Consumer<? super DeviceStream> work) {
    CudaGraph graph = new CudaGraph(device, name);
    Recorder recorder = graph.new Recorder();
    RetainedBuffers buffers = recorder.buffers();
    graph.context.retain();
    try {
      graph.instantiate(recorder.capture(work), recorder.streams.get(0).stream);
    } catch (RuntimeException | Error e) {
      buffers.release();
      graph.context.release();
      throw e;
    } finally {
      recorder.discard();
    }
    // The driver may wait for running work, so the deferred-free thread calls it.
    graph.lifecycle.own(
        () ->
            device.whenEnqueuedWorkIsDone(
                () -> graph.context.deferredFree.execute(() -> graph.destroy(buffers))));
    return graph;
  }

  /** Instantiates a graph, and uploads it on a stream whose capture has ended. */
  @SuppressWarnings("try") // the variable only keeps the lock held
  private void instantiate(CUgraph graph, CUstream stream) {
    int result = JCudaDriver.cuGraphInstantiate(handle, graph, 0);
    JCudaDriver.cuGraphDestroy(graph);
    check(result, "cuGraphInstantiate");
    try (EnqueueLock held = context.enqueueLock.tryLock()) {
      uploaded = context.createEvent(CUevent_flags.CU_EVENT_DISABLE_TIMING);
      check(JCudaDriver.cuGraphUpload(handle, stream), "cuGraphUpload");
      check(JCudaDriver.cuEventRecord(uploaded, stream), "cuEventRecord");
    } catch (RuntimeException | Error e) {
      if (uploaded != null) {
        JCudaDriver.cuEventDestroy(uploaded);
      }
      JCudaDriver.cuGraphExecDestroy(handle);
      throw e;
    }
  }

  private void check(int result, String call) {
    context.check(result, call + " of graph " + name);
  }

  @Override
  public CudaDevice device() {
    return device;
  }

  /** Enqueues a launch and returns the driver's result. The context is current. */
  synchronized int launchOn(CUstream stream) {
    lifecycle.checkOpen();
    if (uploaded != null) {
      if (CudaError.query(uploaded) == CUresult.CUDA_SUCCESS) {
        JCudaDriver.cuEventDestroy(uploaded);
        uploaded = null;
      } else {
        int result = JCudaDriver.cuStreamWaitEvent(stream, uploaded, 0);
        if (result != CUresult.CUDA_SUCCESS) {
          return result;
        }
      }
    }
    return JCudaDriver.cuGraphLaunch(handle, stream);
  }

  @Override
  public void close() {
    synchronized (this) { // waits for a launch that has passed checkOpen()
      if (!lifecycle.beginClose()) {
        return;
      }
    }
    device.remove(this);
    lifecycle.closeChildren();
  }

  private synchronized void destroy(RetainedBuffers buffers) {
    try {
      context.makeCurrent();
      if (uploaded != null) {
        check(JCudaDriver.cuEventSynchronize(uploaded), "cuEventSynchronize");
        JCudaDriver.cuEventDestroy(uploaded);
      }
      check(JCudaDriver.cuGraphExecDestroy(handle), "cuGraphExecDestroy");
    } finally {
      buffers.release();
      context.release();
    }
  }

  @Override
  public String toString() {
    return "CudaGraph(" + name + ")";
  }

  /**
   * A recording in progress, by the driver's stream capture. It has its own streams, whose work the
   * driver records. Only the thread that began it may use it.
   *
   * <p>The capture mode is relaxed: its thread may allocate memory and load kernels meanwhile,
   * which is not recorded.
   */
  private final class Recorder extends Recording {
    private final List<Stream> streams = new ArrayList<>();
    private boolean capturing;

    Recorder() {
      super(CudaGraph.this.name);
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
      return graph;
    }

    /**
     * Ends an unfinished capture and destroys the streams. The driver keeps them until their work
     * is done.
     */
    private void discard() {
      lifecycle.close();
      if (context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
        return; // the context has failed, with all its objects
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
      Stream made = new Stream(this, streamName, context.createStream(false));
      streams.add(made);
      return made;
    }
  }

  /** The stream on which the recorder enqueues. */
  private final class Stream extends CudaStream {
    private final Recorder recorder;

    Stream(Recorder recorder, String name, CUstream stream) {
      super(CudaGraph.this.device, name, stream, recorder);
      this.recorder = recorder;
    }

    @Override
    protected CudaStream newBranch(String branchName) {
      return recorder.newStream(branchName).waitFor(this); // which makes it a part of the capture
    }

    @Override
    public void requireHealthy() {
      checkOpen();
    }
  }
}
