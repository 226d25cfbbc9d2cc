// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.RequiresNativeLibrary;

@RequiresGpus
@RequiresNativeLibrary
class VmmMemoryTest extends CudaMemoryContract {
  VmmMemoryTest() {
    super(CudaMemoryKind.VMM);
  }
}
