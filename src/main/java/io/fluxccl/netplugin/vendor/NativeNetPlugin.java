// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.reactive.CheckedNetPlugin;
import java.util.Optional;

/**
 * A vendor's network plugin for NCCL, of version 6 to 12 of the interface, loaded into this
 * process. The plugin is found as NCCL finds it: {@code NCCL_NET_PLUGIN} names a suffix of {@code
 * libnccl-net-SUFFIX.so} or a library's file; the default is {@code libnccl-net.so}. The newest
 * version that the library supports is used. Misuse is refused before the plugin sees it. The
 * plugin's log lines go to SLF4J, to this class's logger.
 *
 * <p>Posting and testing allocate nothing. A comm may be used by one thread at a time; a second
 * thread at the same time gets {@link io.fluxccl.InvalidUsage}.
 *
 * <p>Plugins before version 11 can be initialized only once: load such a plugin only once in a
 * process.
 */
public final class NativeNetPlugin implements NetPlugin {
  /** NCCL's environment variable that names the library. */
  public static final String VARIABLE = "NCCL_NET_PLUGIN";

  private final VendorPlugin vendor;
  private final NetPlugin checked;

  private NativeNetPlugin(VendorPlugin vendor) {
    this.vendor = vendor;
    this.checked = CheckedNetPlugin.of(vendor);
  }

  /**
   * Loads and initializes a plugin. Its library is unloaded when the plugin is closed.
   *
   * @param wanted the plugin, as in {@value #VARIABLE}: a suffix, a library or its path. Commas
   *     separate several, of which the first that has a plugin is used; null or empty for {@code
   *     libnccl-net.so}
   * @return the plugin
   * @throws io.fluxccl.TransportFailure if no plugin was found, with the names that were searched,
   *     or the plugin has no devices. {@code libnccl-net-fluxccl.so} is refused: it would load
   *     FluxCCL again
   * @throws io.fluxccl.FluxCclException if the plugin can't be initialized
   * @throws io.fluxccl.DeviceFailure if FluxCCL's native library is missing
   */
  public static NativeNetPlugin open(String wanted) {
    return new NativeNetPlugin(VendorPlugin.open(PluginSearch.open(wanted)));
  }

  /** Returns the version of the interface that is used, 6 to 12. */
  public int version() {
    return vendor.version();
  }

  /** Returns the library's file. */
  public String path() {
    return vendor.path();
  }

  /**
   * Returns the library's collective network, which reduces data itself. The first call initializes
   * it; {@link #close} closes it.
   *
   * @return the network, or empty if the library has none of the version in use
   * @throws io.fluxccl.FluxCclException if the network can't be initialized or has no device
   */
  public Optional<CollNetPlugin> collNet() {
    return Optional.ofNullable(vendor.collNet());
  }

  @Override
  public String name() {
    return checked.name();
  }

  @Override
  public int devices() {
    return checked.devices();
  }

  @Override
  public int maxRequests() {
    return checked.maxRequests();
  }

  @Override
  public NetProperties properties(int device) {
    return checked.properties(device);
  }

  @Override
  public NetListenComm listen(int device) {
    return checked.listen(device);
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    return checked.connect(device, handle);
  }

  /**
   * Closes the plugin with all its open objects, and unloads the library. Waits 10 s at most for
   * each call in progress.
   *
   * @throws io.fluxccl.Timeout if a call has not returned by then. The library then stays loaded
   *     and initialized, and the object of the call stays open, until this process ends. To free
   *     them during the call would crash the process. All other objects are closed.
   */
  @Override
  public void close() {
    checked.close();
  }

  @Override
  public String toString() {
    return vendor.toString();
  }
}
