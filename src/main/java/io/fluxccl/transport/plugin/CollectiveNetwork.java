// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.vendor.CollNetPlugin;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;

/**
 * The network that reduces data in its switches, of the plug-in that {@link NetTransport} uses.
 * Holds the plug-in open.
 */
public final class CollectiveNetwork implements AutoCloseable {
  private final CollNetPlugin plugin;
  private final OpenPlugins.Lease lease;

  private CollectiveNetwork(CollNetPlugin plugin, OpenPlugins.Lease lease) {
    this.plugin = plugin;
    this.lease = lease;
  }

  /**
   * Opens the network. May block.
   *
   * @throws TransportFailure if there is no plug-in, or it has no such network
   */
  public static CollectiveNetwork open() {
    OpenPlugins.Lease lease = NetChoice.fromEnvironment().open(null);
    try {
      NetPlugin net = lease.plugin();
      CollNetPlugin found =
          net instanceof NativeNetPlugin vendor ? vendor.collNet().orElse(null) : null;
      if (found == null) {
        throw TransportFailure.of(
            FluxCclException.NO_RANK, "the network %s does not reduce data itself", net);
      }
      return new CollectiveNetwork(found, lease);
    } catch (RuntimeException | Error e) {
      lease.close();
      throw e;
    }
  }

  /** Returns the network, which is open until {@link #close()}. */
  public CollNetPlugin plugin() {
    return plugin;
  }

  @Override
  public void close() {
    lease.close();
  }
}
