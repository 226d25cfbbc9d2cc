// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.RequiresGpus;

/** Four GPUs, one rank on each. */
@RequiresGpus(4)
class ExchangeFourGpusTest extends ExchangeContract {
  @Override
  int most() {
    return 4;
  }
}
