// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

class FakeIbConnectionTest extends IbConnectionContract {
  FakeIbConnectionTest() {
    super(IbRanks::fake);
  }
}
