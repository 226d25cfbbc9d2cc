// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;

/** Eight requests, sizes that are ints, one rail. */
@RequiresNativeLibrary
class NetConnectionV6Test extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) throws Exception {
    return new NetRanks(new NetChoice(null, TestNet.library(folder, 6).toString(), "0", false));
  }
}
