// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.FakeCuda;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUevent;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

@FakeCuda
class WrappedStreamFakeTest extends WrappedStreamContract {
  private static Set<Thread> completionThreads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-completion-"))
        .collect(Collectors.toSet());
  }

  private static long freeBytes() {
    long[] free = new long[1];
    JCudaDriver.cuMemGetInfo(free, new long[1]);
    return free[0];
  }

  /** Takes all memory of the current GPU, by pages and then by events. */
  private static List<CUevent> fill(CUdeviceptr pages) {
    assertThat(JCudaDriver.cuMemAlloc(pages, freeBytes() / 4096 * 4096)).isZero();
    List<CUevent> events = new ArrayList<>();
    CUevent event = new CUevent();
    while (JCudaDriver.cuEventCreate(event, 0) == 0) {
      events.add(event);
      event = new CUevent();
    }
    return events;
  }

  /** The completion thread of a device ends after the last queue was removed. */
  @Test
  void shouldLeaveNothingIfTheGpuHasNoMemoryForAnEvent() {
    Set<Thread> others = completionThreads();
    CudaDevice other = CudaDevice.open(1);
    EngineStream owner = new EngineStream(other);
    CudaStream wrapped = other.wrapStream(owner.address());
    wrapped.completion().join();
    CudaStream second = other.createStream("second");
    second.completion().join();
    Set<Thread> own = completionThreads();
    own.removeAll(others);
    assertThat(own).isNotEmpty();
    other.makeCurrent();
    long before = freeBytes();
    CUdeviceptr pages = new CUdeviceptr();
    List<CUevent> events = fill(pages);
    assertThatThrownBy(() -> other.wrapStream(owner.address()))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("cuEventCreate");
    assertThatThrownBy(() -> wrapped.branch("branch"))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("cuEventCreate");
    events.forEach(JCudaDriver::cuEventDestroy);
    JCudaDriver.cuMemFree(pages);
    assertThat(freeBytes()).isEqualTo(before);
    wrapped.branch("branch").completion().join();
    wrapped.close();
    second.close();
    owner.close();
    other.close();
    Awaitility.await().untilAsserted(() -> assertThat(own).noneMatch(Thread::isAlive));
    Awaitility.await().until(() -> other.context().users() == 0);
  }
}
