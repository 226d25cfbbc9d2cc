/**
 * Shared memory of one host as a transport: ranks of one process hand out addresses, ranks of one
 * host map each other's segments, and a write is a copy by the writing thread.
 *
 * <p>Imports the root package, {@code device}, {@code device.host}, {@code transport} and {@code
 * transport.mapped}.
 */
package io.fluxccl.transport.shm;
