// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testkit.LocalRanks;

/** The host device. */
class RoutedHostTest extends RoutedContract {
  @Override
  LocalRanks ranks(int n) {
    return LocalRanks.of(n);
  }
}
