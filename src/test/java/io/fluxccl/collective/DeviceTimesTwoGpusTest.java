// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;

/** Two GPUs, one rank on each. */
@RequiresGpus(2)
class DeviceTimesTwoGpusTest extends DeviceTimesContract {}
