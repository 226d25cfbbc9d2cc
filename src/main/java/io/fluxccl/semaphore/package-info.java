// SPDX-License-Identifier: Apache-2.0
/**
 * Counters by which one rank signals a peer that the data it sent has arrived. Each kind is named
 * after the places where signal and wait run.
 *
 * <p>Imports the root package, {@code device}, {@code bootstrap}, {@code transport} and {@code
 * communicator}.
 */
package io.fluxccl.semaphore;
