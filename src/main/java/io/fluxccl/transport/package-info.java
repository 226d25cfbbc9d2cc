/**
 * How bytes move between ranks: transports and their flags, registered memory, connections, and the
 * service provider interface that each transport implements in a package of its own; and what
 * several of them share ({@code ConnectionEnd}, {@code AgentConnection}, {@code PostQueue}).
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire} and {@code device}.
 */
package io.fluxccl.transport;
