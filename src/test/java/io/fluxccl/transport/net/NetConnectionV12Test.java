// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;

/** The newest interface, two rails, and requests that can't be had at first. */
@RequiresNativeLibrary
class NetConnectionV12Test extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) throws Exception {
    String library = TestNet.library(folder, 12, "NULL_REQUESTS=500").toString();
    return new NetRanks(new NetChoice("testnet", library, null, false));
  }
}
