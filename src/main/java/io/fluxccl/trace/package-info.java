// SPDX-License-Identifier: Apache-2.0
/**
 * What a rank has done lately and waits for: the flight recorder, the report of a rank, and the
 * dump of a job, made of the reports of its ranks. Imports the root package and {@code wire} only.
 */
@Experimental
package io.fluxccl.trace;

import io.fluxccl.Experimental;
