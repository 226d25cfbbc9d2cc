// SPDX-License-Identifier: Apache-2.0
/**
 * The shared-memory transport. Ranks of one process use each other's segments directly, and other
 * ranks of the host map them. The writing thread copies the bytes of a write.
 *
 * <p>Imports the root package, {@code device}, {@code device.host}, {@code transport} and {@code
 * transport.mapped}.
 */
@Experimental
package io.fluxccl.transport.shm;

import io.fluxccl.Experimental;
