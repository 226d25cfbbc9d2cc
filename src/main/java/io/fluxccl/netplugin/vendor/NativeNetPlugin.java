package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.CheckedNetPlugin;
import io.fluxccl.netplugin.CollNetPlugin;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import java.util.Optional;

/**
 * A vendor's network plugin for NCCL, of version 6 to 12 of the interface, loaded into this
 * process. Found as NCCL finds it: by the name that {@code NCCL_NET_PLUGIN} has, which is a suffix
 * of {@code libnccl-net-SUFFIX.so} or a library's file, or as {@code libnccl-net.so}; the newest
 * version that the library has is used. Misuse is refused before the plugin sees it. What it logs
 * goes to SLF4J, to this class's logger.
 *
 * <p>Posting and testing allocate nothing. A comm of its own takes one thread at a time and says so
 * when there are two.
 *
 * <p>Plugins before version 11 can be initialized once: load one such plugin once in a process.
 */
public final class NativeNetPlugin implements NetPlugin {
  /** The environment variable, NCCL's, that names the library. */
  public static final String VARIABLE = "NCCL_NET_PLUGIN";

  private final VendorPlugin vendor;
  private final NetPlugin checked;

  private NativeNetPlugin(VendorPlugin vendor) {
    this.vendor = vendor;
    this.checked = CheckedNetPlugin.of(vendor);
  }

  /**
   * Loads and initializes a plugin, and unloads it when it is closed.
   *
   * @param wanted as in {@value #VARIABLE}: a suffix, a library or its path, several with commas
   *     between, of which the first that is there is taken; null or empty for {@code
   *     libnccl-net.so}
   * @return the plugin
   * @throws io.fluxccl.TransportFailure if none was found, saying what was searched, or it has no
   *     devices. {@code libnccl-net-fluxccl.so} is none: it would load FluxCCL again
   * @throws io.fluxccl.FluxCclException if the plugin can't be initialized
   * @throws io.fluxccl.DeviceFailure if FluxCCL's native library is missing
   */
  public static NativeNetPlugin open(String wanted) {
    return open(wanted, false);
  }

  /**
   * As {@link #open(String)}.
   *
   * @param wanted see there
   * @param keepLoaded whether the library stays when the plugin is closed, for those with threads
   *     that outlive their connections
   * @return the plugin
   */
  public static NativeNetPlugin open(String wanted, boolean keepLoaded) {
    return new NativeNetPlugin(VendorPlugin.open(PluginSearch.open(wanted), keepLoaded));
  }

  /** The version of the interface that is used, 6 to 12. */
  public int version() {
    return vendor.version();
  }

  /** The library's file. */
  public String path() {
    return vendor.path();
  }

  /**
   * The library's network that reduces by itself, initialized when first asked for; closed with
   * this.
   *
   * @return it, or empty where the library has none of the version in use
   * @throws io.fluxccl.FluxCclException if it can't be initialized or has no device
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
   * Closes the plugin with all that is open of it, and unloads the library. Waits 10 s at most for
   * each call under way.
   *
   * @throws io.fluxccl.Timeout if a call has not returned by then. The library then stays loaded
   *     and initialized, and what the call is of stays open, as long as this process lives: to free
   *     them under the call would be a crash. The rest is closed.
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
