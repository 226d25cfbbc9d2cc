// SPDX-License-Identifier: Apache-2.0
/**
 * The transport {@link io.fluxccl.transport.Transport#ETHERNET}, and what it has in common with
 * {@link io.fluxccl.transport.Transport#NET}: one-sided writes and signals over the sends and
 * receives of a {@link io.fluxccl.netplugin.NetPlugin}.
 *
 * <p>Imports the root package, {@code device}, {@code device.host}, {@code netplugin}, {@code
 * netplugin.tcp} and {@code transport}.
 */
@Experimental
package io.fluxccl.transport.net;

import io.fluxccl.Experimental;
