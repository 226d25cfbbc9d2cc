// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;

/**
 * The origin of a registered memory, as its owner sent it.
 *
 * @param rank the owner
 * @param hostHash the hash of the owner's host
 * @param processHash the hash of the owner's process
 * @param address the address in the owner's process
 * @param size bytes, 1 or more
 */
@Experimental
public record MemoryOrigin(int rank, long hostHash, long processHash, long address, long size) {}
