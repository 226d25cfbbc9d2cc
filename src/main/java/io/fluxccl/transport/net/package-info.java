// SPDX-License-Identifier: Apache-2.0
/**
 * The transport {@link io.fluxccl.transport.Transport#ETHERNET}, and what it has in common with
 * {@link io.fluxccl.transport.Transport#NET}: one-sided writes and signals over the messages of a
 * {@link io.fluxccl.transport.net.Link}. ETHERNET's link is a TCP socket.
 *
 * <p>Imports the root package, {@code device}, {@code device.host}, {@code transport.tcp}, {@code
 * transport} and the packages below.
 */
@Experimental
package io.fluxccl.transport.net;

import io.fluxccl.Experimental;
