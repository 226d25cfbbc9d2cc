/**
 * Vendors' network plugins for NCCL, loaded into this process: {@link
 * io.fluxccl.netplugin.vendor.NativeNetPlugin}. Imports the root package and {@code netplugin}; the
 * native half is {@code native/netplugin_*.c}.
 */
package io.fluxccl.netplugin.vendor;
