// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.RequiresGpus;

/** Two GPUs, one rank on each. */
@RequiresGpus(2)
class ExchangeTwoGpusTest extends ExchangeContract {
  @Override
  int most() {
    return 2;
  }
}
