// SPDX-License-Identifier: Apache-2.0
/**
 * NVIDIA GPUs through JCuda's driver API: memory, streams, kernels, and the mapping of other
 * processes' memory.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire}, {@code device} and {@code
 * completion}.
 */
@Experimental
package io.fluxccl.device.cuda;

import io.fluxccl.Experimental;
