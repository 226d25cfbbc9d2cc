// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;

/** Two GPUs whose kernels run on the CPU, one rank on each. */
@EmulatedGpus
class PipelineEmulatedTest extends PipelineContract {}
