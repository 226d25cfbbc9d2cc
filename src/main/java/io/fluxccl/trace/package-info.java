// SPDX-License-Identifier: Apache-2.0
/**
 * The latest calls of a rank and its current waits: the flight recorder, the snapshot of a rank,
 * and the dump of a job, made of its ranks' snapshots. Imports the root package and {@code wire}
 * only.
 */
@Experimental
package io.fluxccl.trace;

import io.fluxccl.Experimental;
