// SPDX-License-Identifier: Apache-2.0
/**
 * A network plugin over TCP sockets: {@link io.fluxccl.netplugin.tcp.TcpNetPlugin}. Each network
 * interface is a device; the caller's thread drives the first socket of a connection. I/O threads
 * drive more sockets, over which large messages are spread. The ETHERNET transport and the plugin
 * API share this package.
 *
 * <p>Imports the root package and {@code netplugin}.
 */
@Experimental
package io.fluxccl.netplugin.tcp;

import io.fluxccl.Experimental;
