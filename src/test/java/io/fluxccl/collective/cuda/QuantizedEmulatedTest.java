// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.EmulatedGpus;

/** Four GPUs whose kernels run on the CPU. */
@EmulatedGpus
class QuantizedEmulatedTest extends QuantizedContract {}
