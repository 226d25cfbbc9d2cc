// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.testing.RequiresRdma;

@RequiresRdma
class IbFailureTest extends IbFailureContract {
  IbFailureTest() {
    super(IbRanks::new);
  }
}
