// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** FAKE_CUDA_RACES reports only accesses that no fence, release or barrier orders. */
@EmulatedGpus
@EnabledIfEnvironmentVariable(
    named = "FAKE_CUDA_RACES",
    matches = "1",
    disabledReason = "runs with FAKE_CUDA_RACES=1, for which kernels are compiled otherwise")
@Timeout(60)
class EmulatedRacesTest {
  private static String endOf(String kernel) throws Exception {
    try (ProcessRank child = TestJvms.start(EmulatedKernelTest.Mistake.class, kernel)) {
      return child.readLine();
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"forgetsToRelease", "forgetsTheBarrier", "forgetsTheSecondBarrier"})
  void shouldDetectUnorderedMemoryAccesses(String kernel) throws Exception {
    assertThat(endOf(kernel)).contains("LAUNCH_FAILED");
  }

  @ParameterizedTest
  @ValueSource(strings = {"releasesWhatItSends", "fencesWhatItSends", "passesBothBarriers"})
  void shouldReportNoRaceIfAccessesAreOrdered(String kernel) throws Exception {
    assertThat(endOf(kernel)).isEqualTo("no error");
  }
}
