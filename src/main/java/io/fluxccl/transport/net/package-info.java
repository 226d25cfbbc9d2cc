// SPDX-License-Identifier: Apache-2.0
/**
 * The transports {@link io.fluxccl.transport.Transport#ETHERNET} and {@link
 * io.fluxccl.transport.Transport#NET}: one-sided writes and signals over the sends and receives of
 * the TCP network, and of any {@link io.fluxccl.netplugin.NetPlugin}, a vendor's or one in Java.
 *
 * <p>Imports the root package, {@code device}, {@code device.host}, {@code netplugin}, {@code
 * netplugin.tcp}, {@code netplugin.vendor} and {@code transport}.
 */
@Experimental
package io.fluxccl.transport.net;

import io.fluxccl.Experimental;
