// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;

/** Memory of the fake driver's GPUs, over a plugin that reaches the host's only. */
@FakeCuda
@RequiresNativeLibrary
class NetStagedOnFakeGpusTest extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) throws Exception {
    String library = TestNet.library(folder, 9).toString();
    return new NetRanks(
        new NetChoice(null, library, null, false), CudaDevice.open(0), CudaDevice.open(1));
  }
}
