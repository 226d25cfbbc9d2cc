/**
 * TCP sockets as a transport: one-sided writes whose payload the receiver's event loop reads
 * straight into registered memory. A connection is two sockets, one for each direction.
 *
 * <p>Imports the root package, {@code device}, {@code device.host} and {@code transport}.
 */
package io.fluxccl.transport.ethernet;
