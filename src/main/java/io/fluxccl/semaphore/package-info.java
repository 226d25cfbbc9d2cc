/**
 * Who has arrived: counters by which one rank tells a peer that what it sent is there. Each kind is
 * named after where signal and wait run.
 *
 * <p>Imports the root package, {@code device}, {@code bootstrap}, {@code transport} and {@code
 * communicator}.
 */
package io.fluxccl.semaphore;
