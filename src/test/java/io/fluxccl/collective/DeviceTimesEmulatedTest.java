// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Two GPUs whose kernels run on the CPU, one rank on each. */
@EmulatedGpus
class DeviceTimesEmulatedTest extends DeviceTimesContract {
  @Override
  @Test
  @Tag("long")
  void shouldCompleteCallsIfMoreAreInFlightThanCanBeTimed() throws Exception {
    super.shouldCompleteCallsIfMoreAreInFlightThanCanBeTimed();
  }
}
