// SPDX-License-Identifier: Apache-2.0
/**
 * A network plugin over TCP sockets: {@link io.fluxccl.netplugin.tcp.TcpNetPlugin}. Each network
 * interface is a device; the caller's thread drives the first socket of a connection. I/O threads
 * drive more sockets, over which large messages are spread.
 *
 * <p>Imports {@code transport.tcp}, {@code netplugin} and the packages below. Part of the jar
 * {@code fluxccl-nccl}.
 */
@Experimental
package io.fluxccl.netplugin.tcp;

import io.fluxccl.Experimental;
