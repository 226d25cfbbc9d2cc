// SPDX-License-Identifier: Apache-2.0
/**
 * The host as a device: shared memory between processes, streams on threads, kernels that are Java
 * functions run by a block of threads. Not a mock: the default where there is no GPU.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire} and {@code device}.
 */
package io.fluxccl.device.host;
