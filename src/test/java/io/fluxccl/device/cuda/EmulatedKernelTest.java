// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Errors in kernels end these with an error; on a real GPU some of them would hang. */
@EmulatedGpus
@Timeout(60)
class EmulatedKernelTest {
  private final CudaDevice device = CudaDevice.open(0);

  @AfterEach
  void close() {
    device.close();
  }

  /** Runs in a separate process, because the error breaks the context of its process. */
  static final class Mistake {
    public static void main(String[] args) throws Exception {
      CudaDevice device = CudaDevice.open(0);
      DeviceStream stream = device.createStream("mistakes");
      KernelArgs arguments =
          switch (args[0]) {
            case "traps" -> KernelArgs.of();
            case "touchesNothing" -> KernelArgs.of(0x10L);
            default -> KernelArgs.of(device.allocate(1024));
          };
      CudaKernel kernel = (CudaKernel) TestKernels.of("mistakes", args[0]);
      if (args[0].equals("forgetsTheLaunchBefore")) {
        stream.launch(kernel.overlapping(), 2, 64, arguments);
        kernel = kernel.overlapping();
      }
      stream.launch(kernel, 2, 64, arguments);
      try {
        stream.completion().get(60, TimeUnit.SECONDS);
        System.out.println("no error");
      } catch (ExecutionException e) {
        System.out.println(e.getCause().getMessage());
      }
    }
  }

  @ParameterizedTest
  @CsvSource({
    "oneThreadStaysAway, LAUNCH_FAILED",
    "traps, LAUNCH_FAILED",
    "storesBetweenWords, LAUNCH_FAILED",
    "leavesABulkCopyBehind, LAUNCH_FAILED",
    "forgetsTheLaunchBefore, LAUNCH_FAILED",
    "touchesNothing, ILLEGAL_ADDRESS"
  })
  void shouldReportAnErrorIfTheKernelIsWrong(String kernel, String error) throws Exception {
    try (ProcessRank child = TestJvms.start(Mistake.class, kernel)) {
      assertThat(child.readLine()).contains(error);
    }
  }

  /** Only accesses that no fence, release or barrier orders are races. */
  @EnabledIfEnvironmentVariable(
      named = "FAKE_CUDA_RACES",
      matches = "1",
      disabledReason = "runs with FAKE_CUDA_RACES=1, for which kernels are compiled otherwise")
  @ParameterizedTest
  @CsvSource({
    "forgetsToRelease, LAUNCH_FAILED",
    "forgetsTheBarrier, LAUNCH_FAILED",
    "forgetsTheSecondBarrier, LAUNCH_FAILED",
    "releasesWhatItSends, no error",
    "fencesWhatItSends, no error",
    "passesBothBarriers, no error"
  })
  void shouldDetectUnorderedMemoryAccessesOnly(String kernel, String end) throws Exception {
    shouldReportAnErrorIfTheKernelIsWrong(kernel, end);
  }

  @Test
  void shouldRefuseMoreThreadsThanItsLaunchBounds() throws Exception {
    DeviceStream stream = device.createStream("bounds");
    CudaKernel kernel = (CudaKernel) TestKernels.of("mistakes", "sixtyFourThreads");
    stream.launch(kernel, 1, 64, KernelArgs.of());
    stream.completion().get(60, TimeUnit.SECONDS);
    assertThrows(FluxCclException.class, () -> stream.launch(kernel, 1, 96, KernelArgs.of()));
  }

  @Test
  void shouldKnowNoKernelThatWasNotCompiled() {
    assertThrows(
        FluxCclException.class,
        () -> CudaModule.builtIn().kernel("fluxccl_no_such").prepare(device),
        "fluxccl_no_such");
    assertThat(device.context().modules).containsKey(CudaModule.builtIn());
  }
}
