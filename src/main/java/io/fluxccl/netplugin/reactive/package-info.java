// SPDX-License-Identifier: Apache-2.0
/**
 * Users' side of NCCL's network interface: a plug-in whose calls are checked, and its operations as
 * Monos.
 *
 * <p>Imports the root package, {@code concurrent} and {@code netplugin}. Part of the jar {@code
 * fluxccl-nccl}.
 */
@Experimental
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Experimental;
