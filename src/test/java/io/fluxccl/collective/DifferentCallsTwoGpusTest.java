// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** Ranks on two GPUs, which three ranks share. */
@RequiresGpus(2)
class DifferentCallsTwoGpusTest extends DifferentCallsContract {
  @Override
  LocalRanks ranks(int n) {
    return LocalRanks.onGpus(n);
  }

  @Override
  int seeds() {
    return 100;
  }
}
