// SPDX-License-Identifier: Apache-2.0
/**
 * The loader of vendors' network plugins for NCCL: {@link
 * io.fluxccl.netplugin.vendor.NativeNetPlugin} loads one into this process. The native code is
 * {@code native/netplugin_*.c}.
 *
 * <p>Imports {@code netplugin}, {@code netplugin.reactive} and the packages below.
 */
@Experimental
package io.fluxccl.netplugin.vendor;

import io.fluxccl.Experimental;
