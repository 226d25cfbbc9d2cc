// SPDX-License-Identifier: Apache-2.0
/**
 * The host as a device: shared memory between processes, streams on threads, kernels that are Java
 * functions run by a block of threads. It is not a mock, but the default without a GPU.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire} and {@code device}.
 */
package io.fluxccl.device.host;
