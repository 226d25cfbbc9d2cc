/**
 * How bytes move between ranks: transports and their flags, registered memory, connections, and the
 * service provider interface that each transport implements in a package of its own.
 *
 * <p>Imports the root package and {@code device}.
 */
package io.fluxccl.transport;
