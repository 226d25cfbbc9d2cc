// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static jcuda.driver.CUresult.CUDA_ERROR_CAPTURED_EVENT;
import static jcuda.driver.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED;
import static jcuda.driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS;
import static jcuda.driver.CUresult.CUDA_ERROR_ILLEGAL_STATE;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_CONTEXT;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_HANDLE;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_VALUE;
import static jcuda.driver.CUresult.CUDA_ERROR_NOT_READY;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
import static jcuda.driver.CUresult.CUDA_SUCCESS;
import static jcuda.driver.JCudaDriver.*;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.IntSupplier;
import jcuda.Pointer;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUevent;
import jcuda.driver.CUfunction;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUmodule;
import jcuda.driver.CUstream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The fake driver is as strict and asynchronous as its tests assume. */
@FakeCuda
@Timeout(60)
class FakeDriverTest {
  private static final byte[] KERNELS =
      "fake_fill fake_spin fake_trap\0".getBytes(StandardCharsets.US_ASCII);

  private final CUdevice device = new CUdevice();
  private final CUcontext context = new CUcontext();
  private final CUstream stream = new CUstream();
  private final Pointer pinned = new Pointer();
  private ByteBuffer host;

  @BeforeEach
  void open() {
    assertThat(CudaDriver.count()).isEqualTo(2);
    ok(cuDeviceGet(device, 0));
    ok(cuDevicePrimaryCtxRetain(context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuStreamCreate(stream, 1));
    ok(cuMemHostAlloc(pinned, 4096, 3));
    host = pinned.getByteBuffer(0, 4096).order(ByteOrder.LITTLE_ENDIAN);
    host.put(new byte[4096]).clear();
  }

  @AfterEach
  void release() {
    ok(cuMemFreeHost(pinned));
    ok(cuStreamDestroy(stream));
    assertThat(cuStreamDestroy(stream)).isEqualTo(CUDA_ERROR_INVALID_HANDLE);
    ok(cuDevicePrimaryCtxRelease(device));
    ok(cuCtxSetCurrent(new CUcontext()));
  }

  @Test
  void shouldDoTheWorkOfAStreamInOrderWithoutTheCaller() {
    CUdeviceptr memory = new CUdeviceptr();
    ok(cuMemAlloc(memory, 1 << 20));
    spin(256);
    ok(cuMemsetD8Async(memory, (byte) 7, 1 << 20, stream));
    ok(cuMemcpyDtoHAsync(pinned, memory.withByteOffset((1 << 20) - 8), 8, stream));
    ok(cuStreamWriteValue64(stream, devicePointer(512), 3, 0));
    assertThat(cuStreamQuery(stream)).isEqualTo(CUDA_ERROR_NOT_READY);
    assertThat(host.getLong(512)).isZero();
    host.putLong(256, 1);
    ok(cuStreamSynchronize(stream));
    assertThat(host.getLong(512)).isEqualTo(3);
    assertThat(host.getLong(0)).isEqualTo(0x0707070707070707L);
    ok(cuMemFree(memory));
  }

  /** In a process of its own: the error would stay for all tests of this one. */
  static final class Trap {
    public static void main(String[] args) {
      FakeDriverTest test = new FakeDriverTest();
      test.open();
      test.launch("fake_trap", null);
      System.out.println(cuStreamSynchronize(test.stream));
      System.out.println(cuStreamQuery(test.stream));
      System.out.println(cuMemAlloc(new CUdeviceptr(), 8));
      ok(cuDevicePrimaryCtxRelease(test.device));
      System.out.println(cuMemAlloc(new CUdeviceptr(), 8));
    }
  }

  @Test
  void shouldKeepAnErrorOfAKernelUntilTheContextIsReleased() throws Exception {
    try (ProcessRank child = TestJvms.start(Trap.class)) {
      for (int expected :
          new int[] {
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_CONTEXT_IS_DESTROYED
          }) {
        assertThat(child.readLine()).isEqualTo(Integer.toString(expected));
      }
    }
  }

  @Test
  void shouldReturnTheErrorsOfARealDriver() throws Exception {
    CUdeviceptr memory = new CUdeviceptr();
    ok(cuMemAlloc(memory, 4096));
    assertThat(cuMemsetD8Async(memory, (byte) 0, 4097, stream)).isEqualTo(CUDA_ERROR_INVALID_VALUE);
    assertThat(cuStreamWriteValue64(stream, memory.withByteOffset(4), 1, 0))
        .isEqualTo(CUDA_ERROR_INVALID_VALUE);
    assertThat(cuMemFree(memory.withByteOffset(8))).isEqualTo(CUDA_ERROR_INVALID_VALUE);
    int[] result = new int[1];
    Thread other = new Thread(() -> result[0] = cuStreamQuery(stream));
    other.start();
    other.join();
    assertThat(result[0]).isEqualTo(CUDA_ERROR_INVALID_CONTEXT);

    CUdevice second = new CUdevice();
    CUcontext its = new CUcontext();
    ok(cuDeviceGet(second, 1));
    ok(cuDevicePrimaryCtxRetain(its, second));
    ok(cuCtxPushCurrent(its));
    assertThat(cuStreamQuery(stream)).isEqualTo(CUDA_ERROR_INVALID_HANDLE);
    assertThat(cuMemFree(memory)).isEqualTo(CUDA_ERROR_INVALID_VALUE);
    CUstream its1 = new CUstream();
    ok(cuStreamCreate(its1, 1));
    assertThat(cuMemsetD8Async(memory, (byte) 0, 8, its1)).isEqualTo(CUDA_ERROR_INVALID_VALUE);
    ok(cuCtxEnablePeerAccess(context, 0));
    ok(cuMemsetD8Async(memory, (byte) 0, 8, its1));
    ok(cuStreamSynchronize(its1));
    ok(cuStreamDestroy(its1));
    ok(cuCtxPopCurrent(new CUcontext()));
    ok(cuDevicePrimaryCtxRelease(second));
  }

  @Test
  void shouldExecuteACapturedGraphAtEachLaunch() {
    CUstream other = new CUstream();
    CUevent event = new CUevent();
    CUgraph graph = new CUgraph();
    CUgraphExec exec = new CUgraphExec();
    int[] status = new int[1];
    ok(cuStreamCreate(other, 1));
    ok(cuEventCreate(event, 2));
    ok(cuStreamBeginCapture(stream, 2));
    ok(cuEventRecord(event, stream));
    ok(cuStreamWaitEvent(other, event, 0));
    spin(256);
    ok(cuStreamWriteValue64(other, devicePointer(512), 3, 0));
    ok(cuStreamIsCapturing(other, status));
    assertThat(status).containsExactly(1);
    ok(cuEventRecord(event, other));
    ok(cuStreamWaitEvent(stream, event, 0));
    ok(cuStreamEndCapture(stream, graph));
    ok(cuStreamSynchronize(other));
    assertThat(host.getLong(512)).isZero();
    ok(cuGraphInstantiate(exec, graph, 0));
    ok(cuGraphDestroy(graph));
    for (int launch = 0; launch < 3; launch++) {
      host.putLong(512, 0);
      host.putLong(256, 0);
      ok(cuGraphLaunch(exec, stream));
      assertThat(cuStreamQuery(stream)).isEqualTo(CUDA_ERROR_NOT_READY);
      assertThat(cuGraphExecDestroy(exec)).isEqualTo(CUDA_ERROR_ILLEGAL_STATE);
      host.putLong(256, 1);
      ok(cuStreamSynchronize(stream));
      assertThat(host.getLong(512)).isEqualTo(3);
    }
    ok(cuGraphExecDestroy(exec));
    assertThat(cuGraphLaunch(exec, stream)).isEqualTo(CUDA_ERROR_INVALID_HANDLE);
    ok(cuEventDestroy(event));
    ok(cuStreamDestroy(other));
  }

  @Test
  void shouldInvalidateACaptureIfAForbiddenCallIsMade() {
    CUstream other = new CUstream();
    CUevent outside = new CUevent();
    CUevent inside = new CUevent();
    CUgraph graph = new CUgraph();
    ok(cuStreamCreate(other, 1));
    ok(cuEventCreate(outside, 2));
    ok(cuEventCreate(inside, 2));
    ok(cuEventRecord(outside, other));
    assertThat(cuStreamEndCapture(stream, graph)).isEqualTo(CUDA_ERROR_ILLEGAL_STATE);
    List<IntSupplier> forbidden =
        List.of(
            () -> cuStreamSynchronize(stream),
            () -> cuStreamQuery(stream),
            () -> cuStreamWaitEvent(stream, outside, 0),
            () -> cuStreamEndCapture(other, graph));
    int[] expected = {
      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
      CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
    };
    for (int i = 0; i < expected.length; i++) {
      ok(cuStreamBeginCapture(stream, 2));
      ok(cuEventRecord(inside, stream));
      ok(cuStreamWaitEvent(other, inside, 0));
      assertThat(cuEventQuery(inside)).isEqualTo(CUDA_ERROR_CAPTURED_EVENT);
      assertThat(forbidden.get(i).getAsInt()).isEqualTo(expected[i]);
      assertThat(cuStreamWriteValue64(stream, devicePointer(0), 1, 0))
          .isEqualTo(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      assertThat(cuStreamEndCapture(stream, graph))
          .isEqualTo(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    ok(cuStreamBeginCapture(stream, 2));
    ok(cuEventRecord(inside, stream));
    ok(cuStreamWaitEvent(other, inside, 0));
    assertThat(cuStreamEndCapture(stream, graph)).isEqualTo(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assertThat(cuStreamWaitEvent(other, inside, 0)).isEqualTo(CUDA_ERROR_CAPTURED_EVENT);
    ok(cuStreamSynchronize(other));
    ok(cuEventDestroy(inside));
    ok(cuEventDestroy(outside));
    ok(cuStreamDestroy(other));
  }

  @Test
  void shouldShowLeaksInTheFreeMemory() {
    long before = free();
    CUdeviceptr memory = new CUdeviceptr();
    ok(cuMemAlloc(memory, 1 << 20));
    assertThat(free()).isEqualTo(before - (1 << 20));
    ok(cuMemFree(memory));
    assertThat(free()).isEqualTo(before);
  }

  private static long free() {
    long[] free = new long[1];
    ok(cuMemGetInfo(free, new long[1]));
    return free[0];
  }

  private CUdeviceptr devicePointer(int offset) {
    CUdeviceptr pointer = new CUdeviceptr();
    ok(cuMemHostGetDevicePointer(pointer, pinned, 0));
    return pointer.withByteOffset(offset);
  }

  private void spin(int offset) {
    launch("fake_spin", Pointer.to(Pointer.to(devicePointer(offset)), Pointer.to(new long[] {1})));
  }

  private void launch(String name, Pointer arguments) {
    CUmodule module = new CUmodule();
    CUfunction function = new CUfunction();
    ok(cuModuleLoadData(module, KERNELS));
    ok(cuModuleGetFunction(function, module, name));
    ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null));
  }

  private static void ok(int result) {
    assertThat(result).isEqualTo(CUDA_SUCCESS);
  }
}
