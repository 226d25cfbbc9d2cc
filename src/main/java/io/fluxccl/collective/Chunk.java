// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

/**
 * A part of a {@linkplain Collectives#chunked chunked} collective that has completed.
 *
 * @param index from 0
 * @param offset of its first element in the call's output; in each share of it, if that has a share
 *     for each rank: those elements of all shares are done
 * @param count of its elements, in each share
 */
public record Chunk(int index, long offset, long count) {}
