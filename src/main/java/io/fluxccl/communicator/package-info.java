// SPDX-License-Identifier: Apache-2.0
/**
 * Set-up: the communicator queues connections and memory exchanges and runs them all at {@code
 * setup()}, without blocking a thread. It also holds the one abort flag and the one failure of its
 * ranks.
 *
 * <p>Imports the root package, {@code device}, {@code bootstrap} and {@code transport} with the
 * transports.
 */
package io.fluxccl.communicator;
