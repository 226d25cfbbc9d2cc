// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.Experimental;
import io.fluxccl.transport.RegisteredMemory;

/**
 * The place of a semaphore's values in memory that holds many semaphores.
 *
 * @param memory exchanged by the two ranks, and open for longer than the semaphore is used
 * @param offset bytes from its start, a multiple of 64; {@link SemaphoreDescriptor#STATE_LENGTH}
 *     zeros begin there
 */
@Experimental
public record SemaphoreLocation(RegisteredMemory memory, long offset) {}
