// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.TransportFailure;
import org.junit.jupiter.api.Test;

class CudaIpcBusIdTest {
  @Test
  void shouldRefuseAnInvalidBusId() {
    CudaIpcContext.checkBusId(1, "0000:3b:00.0");
    for (String wrong : new String[] {"", "../../etc/x", "0000:3b:00.8", "0000:3b:00.0 "}) {
      assertThatThrownBy(() -> CudaIpcContext.checkBusId(1, wrong))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 1")
          .hasMessageContaining("bus id");
    }
  }
}
