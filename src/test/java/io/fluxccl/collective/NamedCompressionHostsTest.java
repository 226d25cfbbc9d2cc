// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRanks;

/** Ranks on the host device, each on a host of its own. */
class NamedCompressionHostsTest extends NamedCompressionContract implements OnRanks.Placing {
  @Override
  public LocalRanks ranks(int n) {
    return LocalRanks.ofHosts(n, 1);
  }
}
