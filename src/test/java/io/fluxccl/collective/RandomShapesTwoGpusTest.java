// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;

/** Two GPUs, which more ranks share. */
@RequiresGpus(2)
class RandomShapesTwoGpusTest extends RandomShapesContract {}
