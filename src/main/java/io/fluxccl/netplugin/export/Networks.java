// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.ServiceLoader;
import java.util.ServiceLoader.Provider;
import java.util.stream.Collectors;

/** Chooses one of the networks on the class path and opens it. */
final class Networks {
  private Networks() {}

  /** Returns the providers of the networks on the class path. */
  static List<NetPluginProvider> providers() {
    return ServiceLoader.load(NetPluginProvider.class, Networks.class.getClassLoader()).stream()
        .map(Provider::get)
        .toList();
  }

  /**
   * Opens a network.
   *
   * @param name the network's name, or null for the usable one with the highest priority
   * @param providers the providers to choose from
   */
  static NetPlugin open(String name, List<NetPluginProvider> providers) {
    List<NetPluginProvider> found =
        providers.stream()
            .sorted(Comparator.comparingInt(NetPluginProvider::priority).reversed())
            .collect(Collectors.toCollection(ArrayList::new));
    String known = found.stream().map(NetPluginProvider::name).collect(Collectors.joining(", "));
    if (name != null && !name.isBlank()) {
      found.removeIf(each -> !each.name().equalsIgnoreCase(name.trim()));
      if (found.isEmpty()) {
        throw new InvalidUsage("FLUXCCL_NET=" + name + " is not there; there is " + known);
      }
    }
    StringBuilder reasons = new StringBuilder();
    for (NetPluginProvider each : found) {
      String reason = each.unavailableBecause().orElse(null);
      try {
        if (reason == null) {
          return each.open();
        }
      } catch (FluxCclException e) {
        reason = e.getMessage();
      }
      reasons.append("; ").append(each.name()).append(": ").append(reason);
    }
    throw new TransportFailure(
        FluxCclException.NO_RANK, "no network can be used, of: " + known + reasons);
  }
}
