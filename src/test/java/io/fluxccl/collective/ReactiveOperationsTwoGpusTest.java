// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;

/** Ranks on two GPUs, which three ranks share. */
@RequiresGpus(2)
class ReactiveOperationsTwoGpusTest extends ReactiveOperationsContract {}
