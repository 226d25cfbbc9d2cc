// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import java.util.Optional;

/**
 * Opens a network that is written in Java. {@link java.util.ServiceLoader} finds the providers.
 * Stateless.
 */
public interface NetPluginProvider {
  /** Returns the name of the plugin that this provider opens, as in {@code NCCL_NET}. */
  String name();

  /**
   * Returns the priority. If no network is named, the usable one with the highest priority is
   * opened.
   */
  int priority();

  /**
   * Returns the reason why the network can't be used on this machine.
   *
   * @return what is missing and how to get it, or empty if the network is usable
   */
  Optional<String> unavailableBecause();

  /**
   * Opens the network.
   *
   * @return the plugin; the caller closes it
   * @throws io.fluxccl.FluxCclException if the network has no usable device
   */
  NetPlugin open();
}
