// SPDX-License-Identifier: Apache-2.0
package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.matmul.MatrixProducts;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportProvider;
import java.util.EnumSet;
import java.util.ServiceLoader;
import java.util.Set;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** The jars fluxccl-rdma, -nccl, -matmul and -kernels beside fluxccl. */
class PartsTest {
  @Test
  void shouldFindAllTransports() {
    Set<Transport> found = EnumSet.noneOf(Transport.class);
    for (TransportProvider provider : ServiceLoader.load(TransportProvider.class)) {
      found.addAll(provider.transports());
      // The error names another reason than a missing jar.
      for (Transport transport : provider.transports()) {
        String reason = provider.unavailableBecause(transport).orElse("");
        assertFalse(reason.contains("Maven"), transport + ": " + reason);
      }
    }
    assertEquals(EnumSet.allOf(Transport.class), found);
  }

  @Test
  void shouldLoadTheProductsOfMatrices() {
    assertFalse(MatrixProducts.unavailableBecause().orElse("").contains("Maven"));
  }

  @Test
  void shouldMissNoJarForGpus() {
    Assumptions.assumeTrue(CudaDriver.count() == 0, "there are GPUs");
    String reason = assertThrows(DeviceFailure.class, () -> CudaDevice.open(0)).getMessage();
    assertFalse(reason.contains("Maven"), reason);
  }
}
