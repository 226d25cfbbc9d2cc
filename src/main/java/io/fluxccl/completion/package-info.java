// SPDX-License-Identifier: Apache-2.0
/**
 * Tracks the progress of streams for the host. Streams store growing numbers into pinned memory;
 * one thread polls these numbers and completes futures.
 *
 * <p>Imports the root package and {@code device}.
 */
@Experimental
package io.fluxccl.completion;

import io.fluxccl.Experimental;
