// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;

/** Memory of the fake driver's GPUs, which the plugin says it reaches. */
@FakeCuda
@RequiresNativeLibrary
class NetOnFakeGpusTest extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) throws Exception {
    String library = TestNet.library(folder, 11, "POINTERS=3").toString();
    return new NetRanks(
        new NetChoice(null, library, null, false), CudaDevice.open(0), CudaDevice.open(1));
  }
}
