// SPDX-License-Identifier: Apache-2.0
/**
 * Collectives of GPUs on one host that map each other's memory: kernels of {@code
 * src/main/cuda/collectives}, and copy engines where they are faster. {@link
 * io.fluxccl.collective.cuda.MappedGpuFamily} has all of them, as rows of tables.
 *
 * <p>Imports {@code collective} and the layers below. Found by ServiceLoader.
 */
@Experimental
package io.fluxccl.collective.cuda;

import io.fluxccl.Experimental;
