// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Memory of emulated GPUs over real queue pairs, registered by its address. */
@EmulatedGpus
@RequiresRdma
@Timeout(120)
class CudaIbTest {
  @Test
  void shouldWriteAndSignalBetweenGpusInBothDirections() throws Exception {
    RdmaDevices.Device ib0 = RdmaDevices.ofThisMachine().get(0);
    try (IbRanks ranks = new IbRanks(VerbsLibrary.get(), ib0, 1 << 20, CudaDevice::open)) {
      ranks.exchange(300_000);
    }
  }
}
