// SPDX-License-Identifier: Apache-2.0
/**
 * Sockets, listeners and connects over TCP, with TLS or without. The ETHERNET transport and the
 * built-in network plug-in share them.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire} and {@code tls}.
 */
@Experimental
package io.fluxccl.transport.tcp;

import io.fluxccl.Experimental;
