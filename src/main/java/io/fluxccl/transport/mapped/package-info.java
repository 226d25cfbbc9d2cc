/**
 * The base of the two transports whose ranks map each other's memory, SHM and CUDA_IPC: their
 * contexts, endpoints, connections and wire formats. Each of the two adds how it maps, copies and
 * signals.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire}, {@code device} and {@code
 * transport}.
 */
package io.fluxccl.transport.mapped;
