// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.RequiresNativeLibrary;

/** Two GPUs, one rank on each. */
@RequiresGpus(2)
@RequiresNativeLibrary
class EngineMemoryTwoGpusTest extends EngineMemoryContract {}
