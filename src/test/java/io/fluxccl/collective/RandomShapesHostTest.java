// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testkit.LocalRanks;

/** The host device. */
class RandomShapesHostTest extends RandomShapesContract {
  @Override
  LocalRanks ranks(int n) {
    return LocalRanks.of(n);
  }
}
