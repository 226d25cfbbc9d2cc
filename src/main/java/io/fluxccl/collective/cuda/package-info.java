// SPDX-License-Identifier: Apache-2.0
/**
 * Collectives of GPUs on one host that map each other's memory: kernels of {@code
 * src/main/cuda/collectives}, and copy engines where they are faster. Each family keeps its own
 * state on every rank: epochs, flags and areas for packets.
 *
 * <p>Imports {@code collective} and the layers below. Found by ServiceLoader.
 */
@Experimental
package io.fluxccl.collective.cuda;

import io.fluxccl.Experimental;
