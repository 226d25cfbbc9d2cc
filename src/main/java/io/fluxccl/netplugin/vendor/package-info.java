// SPDX-License-Identifier: Apache-2.0
/**
 * The loader of vendors' network plugins for NCCL: {@link
 * io.fluxccl.netplugin.vendor.NativeNetPlugin} loads one into this process. Imports the root
 * package and {@code netplugin}; the native code is {@code native/netplugin_*.c}.
 */
@Experimental
package io.fluxccl.netplugin.vendor;

import io.fluxccl.Experimental;
