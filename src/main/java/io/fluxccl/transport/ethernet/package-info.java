/**
 * TCP sockets as a transport: one-sided writes whose payload the receiver's event loop reads
 * straight into registered memory. A connection is two sockets, one for each direction. Memory that
 * sockets can't reach, a GPU's, is staged through rings of pinned memory in both directions, by the
 * device SPI alone.
 *
 * <p>Imports the root package, {@code device}, {@code device.host} and {@code transport}.
 */
package io.fluxccl.transport.ethernet;
