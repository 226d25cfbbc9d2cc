// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.testing.RequiresRdma;

@RequiresRdma
class IbConnectionTest extends IbConnectionContract {
  IbConnectionTest() {
    super(IbRanks::new);
  }
}
