/**
 * A network over TCP sockets: {@link io.fluxccl.netplugin.tcp.TcpNetPlugin}. Each network interface
 * is a device; a connection is one socket that the caller's thread drives, and more of them, driven
 * by I/O threads, over which large messages are spread. ETHERNET and the plug-in API share it.
 *
 * <p>Imports the root package and {@code netplugin}.
 */
package io.fluxccl.netplugin.tcp;
