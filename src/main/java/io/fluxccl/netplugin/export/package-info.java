// SPDX-License-Identifier: Apache-2.0
/**
 * The export of a {@link io.fluxccl.netplugin.NetPlugin} to NCCL: {@code libnccl-net-fluxccl.so}
 * calls the static methods of {@link io.fluxccl.netplugin.export.NetPluginExport}, with numbers in
 * place of objects.
 *
 * <p>Imports the root package, {@code netplugin} and {@code netplugin.vendor}; finds networks by
 * {@link java.util.ServiceLoader}.
 */
@Experimental
package io.fluxccl.netplugin.export;

import io.fluxccl.Experimental;
