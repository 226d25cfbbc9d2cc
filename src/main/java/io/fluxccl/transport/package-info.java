// SPDX-License-Identifier: Apache-2.0
/**
 * Transports, which move bytes between ranks: their flags, registered memory and connections. Each
 * transport implements the service provider interface {@code TransportProvider} in a package of its
 * own. Several transports share {@code ConnectionEnd}, {@code AgentConnection} and {@code
 * PostQueue}.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire} and {@code device}.
 */
package io.fluxccl.transport;
