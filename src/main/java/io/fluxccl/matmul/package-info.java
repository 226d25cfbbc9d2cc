// SPDX-License-Identifier: Apache-2.0
/**
 * Products of matrices on NVIDIA GPUs, by cuBLASLt or by kernels of this package, alone or with
 * collectives beside them, and the matrices in host memory that they are loaded from.
 *
 * <p>Imports the root package, {@code concurrent}, {@code device} with its devices, and {@code
 * collective}. It is the jar {@code fluxccl-matmul}.
 */
@Experimental
package io.fluxccl.matmul;

import io.fluxccl.Experimental;
