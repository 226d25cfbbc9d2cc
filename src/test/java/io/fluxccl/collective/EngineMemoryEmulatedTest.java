// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresNativeLibrary;

/** Two GPUs whose kernels run on the CPU. */
@EmulatedGpus
@RequiresNativeLibrary
class EngineMemoryEmulatedTest extends EngineMemoryContract {}
