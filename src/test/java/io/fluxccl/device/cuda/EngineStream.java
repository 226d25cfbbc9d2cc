// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import jcuda.Pointer;
import jcuda.driver.CUfunction;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamWaitValue_flags;
import jcuda.driver.JCudaDriver;

/**
 * A stream of an engine with its own kernel, copies and graph, all enqueued with the driver,
 * without this library.
 */
public final class EngineStream implements AutoCloseable {
  public static final int GLOBAL = 0;
  public static final int THREAD_LOCAL = 1;
  public static final int RELAXED = 2;

  private final CudaDevice device;
  private final CUstream stream = new CUstream();
  private final CUmodule module = new CUmodule();
  private final CUfunction add = new CUfunction();
  private CUgraphExec graph;

  public EngineStream(CudaDevice device) {
    this.device = device;
    device.makeCurrent();
    check(JCudaDriver.cuStreamCreate(stream, 0), "cuStreamCreate");
    check(JCudaDriver.cuModuleLoadData(module, kernels()), "cuModuleLoadData");
    check(JCudaDriver.cuModuleGetFunction(add, module, "fake_add"), "cuModuleGetFunction");
  }

  private static byte[] kernels() {
    try (InputStream in = EngineStream.class.getResourceAsStream("/cuda/stream_kernels.ptx")) {
      byte[] text = in.readAllBytes();
      return Arrays.copyOf(text, text.length + 1); // with its terminating zero
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static void check(int result, String call) {
    if (result != CUresult.CUDA_SUCCESS) {
      throw new IllegalStateException(call + ": " + CUresult.stringFor(result));
    }
  }

  public CUstream handle() {
    return stream;
  }

  /** Returns the stream handle for the driver's C functions. */
  public long address() {
    return CudaPointer.valueOf(stream);
  }

  /** Enqueues the engine's kernel, which adds to a word of 64 bits. */
  public void add(long address, long value) {
    device.makeCurrent();
    Pointer parameters =
        Pointer.to(Pointer.to(new long[] {address}), Pointer.to(new long[] {value}));
    check(
        JCudaDriver.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, parameters, null),
        "cuLaunchKernel");
  }

  /** Enqueues the engine's copy. */
  public void copy(long target, long source, long size) {
    device.makeCurrent();
    check(
        JCudaDriver.cuMemcpyDtoDAsync(
            new CudaPointer(target), new CudaPointer(source), size, stream),
        "cuMemcpyDtoDAsync");
  }

  /** Makes later work wait until a 64-bit word is at least the given value. */
  public void waitFor(long address, long value) {
    device.makeCurrent();
    check(
        JCudaDriver.cuStreamWaitValue64(
            stream,
            new CudaPointer(address),
            value,
            CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64");
  }

  public void await() {
    device.makeCurrent();
    check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  public void beginCapture(int mode) {
    device.makeCurrent();
    check(JCudaDriver.cuStreamBeginCapture(stream, mode), "cuStreamBeginCapture");
  }

  /** Ends the capture; fails if it was invalidated. */
  public void endCapture() {
    device.makeCurrent();
    CUgraph captured = new CUgraph();
    check(JCudaDriver.cuStreamEndCapture(stream, captured), "cuStreamEndCapture");
    graph = new CUgraphExec();
    check(JCudaDriver.cuGraphInstantiate(graph, captured, 0), "cuGraphInstantiate");
    check(JCudaDriver.cuGraphDestroy(captured), "cuGraphDestroy");
  }

  /** Enqueues the graph. */
  public void replay() {
    device.makeCurrent();
    check(JCudaDriver.cuGraphLaunch(graph, stream), "cuGraphLaunch");
  }

  @Override
  public void close() {
    device.makeCurrent();
    check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (graph != null) {
      check(JCudaDriver.cuGraphExecDestroy(graph), "cuGraphExecDestroy");
    }
    check(JCudaDriver.cuModuleUnload(module), "cuModuleUnload");
    check(JCudaDriver.cuStreamDestroy(stream), "cuStreamDestroy");
  }
}
