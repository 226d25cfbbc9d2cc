// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import io.fluxccl.netplugin.reactive.CheckedNetPlugin;
import io.fluxccl.netplugin.tcp.TcpNetPluginProvider;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.settings.Settings;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;

/**
 * The choice of a network and of its devices.
 *
 * @param network the required name of the network, as in {@code NCCL_NET}, or null for any
 * @param library the vendor's library, as in {@code NCCL_NET_PLUGIN}, or null; {@code none} for no
 *     library
 * @param devices comma-separated numbers or names of devices, or null for all; over TCP for the one
 *     with the rank's address
 */
public record NetChoice(String network, String library, String devices) {
  private static final String NO_LIBRARY = "none";

  /** Returns the choice of the environment variables, each overridden by its system property. */
  public static NetChoice fromEnvironment() {
    return new NetChoice(
        value(NetTransport.NETWORK_PROPERTY, NetTransport.NETWORK_VARIABLE),
        value(NetTransport.LIBRARY_PROPERTY, NativeNetPlugin.VARIABLE),
        Settings.ofProcess().word(NetTransport.DEVICES_VARIABLE).orElse(null));
  }

  private static String value(String property, String variable) {
    String value = System.getProperty(property, System.getenv(variable));
    return value == null || value.isBlank() ? null : value.strip();
  }

  /**
   * Opens the network, or shares it if it is open already.
   *
   * @param address at which the other ranks reach this one, where TCP listens unless devices are
   *     chosen; null if no TCP connections are needed
   * @throws FluxCclException if there is no such network; the message lists what was tried
   */
  OpenPlugins.Lease open(InetAddress address) {
    List<String> tried = new ArrayList<>();
    Optional<OpenPlugins.Lease> found =
        library == null && network != null
            ? inJava(address, tried).or(() -> vendors(tried))
            : vendors(tried).or(() -> inJava(address, tried));
    return found.orElseThrow(
        () ->
            new TransportFailure(
                FluxCclException.NO_RANK,
                Text.of(
                    "there is no network %s for NET: %s",
                    network == null ? "plugin" : network,
                    tried.isEmpty() ? "none was named" : String.join("; ", tried))));
  }

  private Optional<OpenPlugins.Lease> vendors(List<String> tried) {
    if (NO_LIBRARY.equals(library)) {
      return Optional.empty();
    }
    OpenPlugins.Lease lease;
    try {
      lease = OpenPlugins.lease("library " + library, () -> NativeNetPlugin.open(library));
    } catch (FluxCclException e) {
      if (library != null && network == null) {
        throw e;
      }
      tried.add(e.getMessage());
      return Optional.empty();
    }
    if (network != null && !lease.plugin().name().equalsIgnoreCase(network)) {
      tried.add(lease.plugin() + " has another name");
      lease.close();
      return Optional.empty();
    }
    return Optional.of(lease);
  }

  private Optional<OpenPlugins.Lease> inJava(InetAddress address, List<String> tried) {
    return ServiceLoader.load(NetPluginProvider.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(provider -> network == null || provider.name().equalsIgnoreCase(network))
        .sorted(Comparator.comparingInt(NetPluginProvider::priority).reversed())
        .flatMap(provider -> open(provider, address, tried).stream())
        .findFirst();
  }

  private Optional<OpenPlugins.Lease> open(
      NetPluginProvider provider, InetAddress address, List<String> tried) {
    Optional<String> reason = provider.unavailableBecause();
    if (reason.isPresent()) {
      tried.add(provider.name() + ": " + reason.get());
      return Optional.empty();
    }
    try {
      if (provider instanceof TcpNetPluginProvider tcp && address != null && devices == null) {
        return Optional.of(
            OpenPlugins.lease(
                "provider " + provider.name() + " at " + address.getHostAddress(),
                () -> CheckedNetPlugin.of(tcp.openAt(address))));
      }
      return Optional.of(
          OpenPlugins.lease(
              "provider " + provider.name(), () -> CheckedNetPlugin.of(provider.open())));
    } catch (FluxCclException e) {
      tried.add(provider.name() + ": " + e.getMessage());
      return Optional.empty();
    }
  }

  /**
   * Returns the chosen devices of a network, one for each rail: at most eight.
   *
   * @throws InvalidUsage if a named device does not exist
   */
  int[] devicesOf(NetPlugin plugin) {
    List<Integer> chosen = new ArrayList<>();
    if (devices == null) {
      for (int device = 0; device < plugin.devices(); device++) {
        chosen.add(device);
      }
    } else {
      for (String name : devices.split(",")) {
        chosen.add(deviceOf(plugin, name.strip()));
      }
    }
    return chosen.stream().limit(PluginAddress.MAX_RAILS).mapToInt(Integer::intValue).toArray();
  }

  private static int deviceOf(NetPlugin plugin, String name) {
    List<String> names = new ArrayList<>();
    for (int device = 0; device < plugin.devices(); device++) {
      names.add(plugin.properties(device).name());
      if (names.get(device).equals(name) || Integer.toString(device).equals(name)) {
        return device;
      }
    }
    throw InvalidUsage.of(
        "%s: the network %s has no device \"%s\"; it has %s",
        NetTransport.DEVICES_VARIABLE, plugin.name(), name, names);
  }
}
