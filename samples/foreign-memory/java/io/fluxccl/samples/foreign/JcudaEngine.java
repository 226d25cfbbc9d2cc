// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.foreign;

import static jcuda.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
import static jcuda.driver.JCudaDriver.cuGraphDestroy;
import static jcuda.driver.JCudaDriver.cuGraphExecDestroy;
import static jcuda.driver.JCudaDriver.cuGraphInstantiate;
import static jcuda.driver.JCudaDriver.cuGraphLaunch;
import static jcuda.driver.JCudaDriver.cuMemAlloc;
import static jcuda.driver.JCudaDriver.cuMemFree;
import static jcuda.driver.JCudaDriver.cuMemcpyDtoH;
import static jcuda.driver.JCudaDriver.cuMemsetD32Async;
import static jcuda.driver.JCudaDriver.cuStreamBeginCapture;
import static jcuda.driver.JCudaDriver.cuStreamCreate;
import static jcuda.driver.JCudaDriver.cuStreamDestroy;
import static jcuda.driver.JCudaDriver.cuStreamEndCapture;
import static jcuda.driver.JCudaDriver.cuStreamSynchronize;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;

/** An engine in plain JCuda: its block of memory, its stream, its graph. */
final class JcudaEngine implements Engine {
  private static final long BLOCK = 20 << 20;
  private static final long OFFSET = 4096;

  private final CudaDevice device;
  private final int floats;
  private final CUdeviceptr block = new CUdeviceptr();
  private final CUstream stream = new CUstream();
  private final CUdeviceptr tensor;
  private CudaStream wrapped;

  JcudaEngine(CudaDevice device, int floats) {
    this.device = device;
    this.floats = floats;
    device.makeCurrent(); // the GPU's primary context, as cudaSetDevice does
    check(cuMemAlloc(block, Math.max(BLOCK, OFFSET + 4L * floats)));
    check(cuStreamCreate(stream, 0));
    this.tensor = block.withByteOffset(OFFSET);
  }

  private static void check(int result) {
    if (result != CUresult.CUDA_SUCCESS) {
      throw new IllegalStateException(CUresult.stringFor(result));
    }
  }

  @Override
  public DeviceBuffer wrap() {
    return device.wrap(tensor, 4L * floats);
  }

  @Override
  public Collectives lane(Collectives collectives) {
    wrapped = device.wrap(stream);
    return collectives.lane(wrapped).join();
  }

  @Override
  public void steps(Collectives lane, DeviceBuffer x, float value, int times) {
    // Enqueued in order with the engine's own work; once before the capture.
    check(cuMemsetD32Async(tensor, Float.floatToRawIntBits(value), floats, stream));
    lane.allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block();
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check(cuMemsetD32Async(tensor, Float.floatToRawIntBits(value), floats, stream));
    lane.allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block(); // recorded: completes at once
    CUgraph captured = new CUgraph();
    check(cuStreamEndCapture(stream, captured));
    CUgraphExec graph = new CUgraphExec();
    check(cuGraphInstantiate(graph, captured, 0));
    check(cuGraphDestroy(captured));
    for (int step = 1; step < times; step++) {
      check(cuGraphLaunch(graph, stream));
    }
    check(cuStreamSynchronize(stream)); // replays are the engine's to wait for
    check(cuGraphExecDestroy(graph));
  }

  @Override
  public float[] read() {
    float[] host = new float[floats];
    device.makeCurrent();
    check(cuMemcpyDtoH(Pointer.to(host), tensor, 4L * floats));
    return host;
  }

  @Override
  public void close() {
    wrapped.close();
    device.makeCurrent();
    check(cuStreamDestroy(stream));
    check(cuMemFree(block));
  }
}
