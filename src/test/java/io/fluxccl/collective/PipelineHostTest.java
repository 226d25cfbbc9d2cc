// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testkit.LocalRanks;

/** Ranks on the host device. */
class PipelineHostTest extends PipelineContract {
  @Override
  LocalRanks ranks() {
    return LocalRanks.of(2);
  }
}
