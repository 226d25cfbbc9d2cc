// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** Two GPUs, which more ranks share. */
@RequiresGpus(2)
class QuantizedTwoGpusTest extends QuantizedContract {
  @Override
  LocalRanks ranks(int n) {
    return LocalRanks.onGpus(n);
  }
}
