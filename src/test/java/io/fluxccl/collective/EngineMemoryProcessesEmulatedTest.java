// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresNativeLibrary;
import org.junit.jupiter.api.Tag;

/** Two GPUs whose kernels run on the CPU, each in a process of its own. */
@EmulatedGpus
@RequiresNativeLibrary
@Tag("long")
@Tag("multiprocess")
class EngineMemoryProcessesEmulatedTest extends EngineMemoryProcessesContract {}
