package io.fluxccl.netplugin;

import java.util.Optional;

/** How a network written in Java is found: by {@link java.util.ServiceLoader}. Stateless. */
public interface NetPluginProvider {
  /** The name of the plugin that it opens, as in {@code NCCL_NET}. */
  String name();

  /** Where several could serve and none was named, the highest goes first. */
  int priority();

  /**
   * Why the network can't be used on this machine.
   *
   * @return what is missing and how to get it, or empty when it is available
   */
  Optional<String> unavailableBecause();

  /**
   * Opens the network.
   *
   * @return the plugin; the caller closes it
   * @throws io.fluxccl.FluxCclException if it has no usable device
   */
  NetPlugin open();
}
