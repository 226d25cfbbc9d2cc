// SPDX-License-Identifier: Apache-2.0
/**
 * The base of SHM and CUDA_IPC, the two transports whose ranks map each other's memory: contexts,
 * endpoints, connections and wire formats. Each of the two implements mapping, copying and
 * signalling.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire}, {@code device} and {@code
 * transport}.
 */
@Experimental
package io.fluxccl.transport.mapped;

import io.fluxccl.Experimental;
