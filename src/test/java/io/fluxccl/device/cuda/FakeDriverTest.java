// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static jcuda.driver.CUresult.CUDA_ERROR_CAPTURED_EVENT;
import static jcuda.driver.CUresult.CUDA_ERROR_ILLEGAL_STATE;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_CONTEXT;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_HANDLE;
import static jcuda.driver.CUresult.CUDA_ERROR_INVALID_VALUE;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
import static jcuda.driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
import static jcuda.driver.CUresult.CUDA_SUCCESS;
import static jcuda.driver.JCudaDriver.*;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.FakeCuda;
import java.util.Map;
import java.util.function.IntSupplier;
import jcuda.Pointer;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUevent;
import jcuda.driver.CUgraph;
import jcuda.driver.CUstream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The fake driver is as strict and asynchronous as its tests assume. */
@FakeCuda
@Timeout(60)
class FakeDriverTest {
  private final CUdevice device = new CUdevice();
  private final CUcontext context = new CUcontext();
  private final CUstream stream = new CUstream();
  private final Pointer pinned = new Pointer();

  @BeforeEach
  void open() {
    assertThat(CudaDriver.count()).isEqualTo(2);
    ok(cuDeviceGet(device, 0));
    ok(cuDevicePrimaryCtxRetain(context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuStreamCreate(stream, 1));
    ok(cuMemHostAlloc(pinned, 4096, 3));
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
    Map<IntSupplier, Integer> forbidden =
        Map.of(
            () -> cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            () -> cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            () -> cuStreamWaitEvent(stream, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            () -> cuStreamEndCapture(other, graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    for (IntSupplier call : forbidden.keySet()) {
      ok(cuStreamBeginCapture(stream, 2));
      ok(cuEventRecord(inside, stream));
      ok(cuStreamWaitEvent(other, inside, 0));
      assertThat(cuEventQuery(inside)).isEqualTo(CUDA_ERROR_CAPTURED_EVENT);
      assertThat(call.getAsInt()).isEqualTo(forbidden.get(call));
      assertThat(cuStreamWriteValue64(stream, devicePointer(), 1, 0))
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

  private CUdeviceptr devicePointer() {
    CUdeviceptr pointer = new CUdeviceptr();
    ok(cuMemHostGetDevicePointer(pointer, pinned, 0));
    return pointer;
  }

  private static void ok(int result) {
    assertThat(result).isEqualTo(CUDA_SUCCESS);
  }
}
