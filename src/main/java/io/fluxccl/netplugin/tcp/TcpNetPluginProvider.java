// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import io.fluxccl.settings.Settings;
import java.net.InetAddress;
import java.util.Optional;

/** Provides {@link TcpNetPlugin}, configured by the environment. */
public final class TcpNetPluginProvider implements NetPluginProvider {
  /** The priority, which is below that of a network for special hardware. */
  private static final int PRIORITY = 0;

  @Override
  public String name() {
    return TcpNetPlugin.NAME;
  }

  @Override
  public int priority() {
    return PRIORITY;
  }

  @Override
  public Optional<String> unavailableBecause() {
    return Optional.empty();
  }

  @Override
  public NetPlugin open() {
    return new TcpNetPlugin(TcpOptions.fromEnvironment(Settings.ofProcess()));
  }

  /**
   * Opens the network for a rank. It listens only where the other ranks reach it, unless the
   * environment names interfaces: a job at the loopback is not to be reached from other hosts.
   *
   * @param address at which the other ranks reach this one
   * @return as {@link #open()}
   */
  public NetPlugin openAt(InetAddress address) {
    TcpOptions options = TcpOptions.fromEnvironment(Settings.ofProcess());
    return options.interfaces().isDefault()
        ? TcpNetPlugin.at(address, options)
        : new TcpNetPlugin(options);
  }
}
