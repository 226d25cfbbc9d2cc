// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testkit.LocalRanks;

/** Ranks on the host device. */
class DifferentCallsHostTest extends DifferentCallsContract {
  @Override
  LocalRanks ranks(int n) {
    return LocalRanks.of(n);
  }
}
