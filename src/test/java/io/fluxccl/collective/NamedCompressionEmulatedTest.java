// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;

/** Ranks on GPUs whose kernels run on the CPU. */
@EmulatedGpus
class NamedCompressionEmulatedTest extends NamedCompressionContract {}
