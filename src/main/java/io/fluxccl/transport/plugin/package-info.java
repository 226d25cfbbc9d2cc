// SPDX-License-Identifier: Apache-2.0
/**
 * The transport NET: any network that has a plug-in for NCCL, and the network of such a plug-in
 * that reduces data itself.
 *
 * <p>Imports {@code transport}, {@code transport.net}, {@code netplugin} and the packages below.
 * Part of the jar {@code fluxccl-nccl}.
 */
@Experimental
package io.fluxccl.transport.plugin;

import io.fluxccl.Experimental;
