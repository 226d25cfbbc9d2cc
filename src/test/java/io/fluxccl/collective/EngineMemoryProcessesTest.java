// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.RequiresNativeLibrary;
import org.junit.jupiter.api.Tag;

/** Two GPUs, each in a process of its own. */
@RequiresGpus(2)
@RequiresNativeLibrary
@Tag("multiprocess")
class EngineMemoryProcessesTest extends EngineMemoryProcessesContract {}
