// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Recording;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;

/**
 * A recording in progress, by the driver's stream capture. It has its own streams, whose work the
 * driver records. Only the thread that began it may use it.
 *
 * <p>The capture mode is relaxed: its thread may allocate memory and load kernels meanwhile, which
 * is not recorded.
 */
final class CudaRecording extends Recording {
  final CudaDevice device;
  private final PrimaryContext context;
  final String name;
  private final List<Stream> streams = new ArrayList<>();
  private boolean capturing;

  private CudaRecording(CudaDevice device, String name) {
    super(name);
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
      recording.buffers().release();
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
      return new CudaGraph(this, handle, uploaded);
    } catch (RuntimeException | Error e) {
      uploaded.destroy();
      JCudaDriver.cuGraphExecDestroy(handle);
      throw e;
    }
  }

  /** Uploads on the first recording stream, whose capture has ended. */
  @SuppressWarnings("try") // the variable only keeps the lock held
  private void upload(CUgraphExec handle, StreamEvent uploaded) {
    CUstream stream = streams.get(0).stream;
    try (EnqueueLock held = context.enqueueLock.tryLock()) {
      check(JCudaDriver.cuGraphUpload(handle, stream), "cuGraphUpload");
      check(uploaded.record(stream), "cuEventRecord");
    }
  }

  private void check(int result, String call) {
    context.check(result, call + " of graph " + name);
  }

  /**
   * Ends an unfinished capture and destroys the streams. The driver keeps them until their work is
   * done.
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
    Stream made = new Stream(streamName, context.createStream(false));
    streams.add(made);
    return made;
  }

  /** The stream on which the recorder enqueues. */
  private final class Stream extends CudaStream {
    Stream(String name, CUstream stream) {
      super(CudaRecording.this.device, name, stream, CudaRecording.this);
    }

    @Override
    protected CudaStream newBranch(String branchName) {
      return newStream(branchName).waitFor(this); // which makes it a part of the capture
    }

    @Override
    public void requireHealthy() {
      checkOpen();
    }
  }
}
