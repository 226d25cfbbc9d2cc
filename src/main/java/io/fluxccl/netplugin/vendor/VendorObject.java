// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

/**
 * An object of a vendor's network, such as a listener. A gate guards its calls; closing the network
 * closes it.
 */
abstract class VendorObject<N extends VendorNetwork> implements AutoCloseable {
  private final N network;
  private final long object;
  private final PluginCallLock gate;

  /**
   * Creates an object with an open gate.
   *
   * @param object the native object
   * @param what the name of the object, for messages
   */
  VendorObject(N network, long object, String what) {
    this.network = network;
    this.object = object;
    this.gate = new PluginCallLock(what + " of " + network, network.patience());
  }

  final N network() {
    return network;
  }

  /** Returns the native object of the network. */
  final long net() {
    return network.net();
  }

  /** Returns the native object. */
  final long object() {
    return object;
  }

  final PluginCallLock gate() {
    return gate;
  }

  /** Frees the native object. Called once, while no call is inside the gate. */
  abstract void free();

  @Override
  public final void close() {
    gate.close(
        () -> {
          try {
            free();
          } finally {
            // Only after free(): the library may be unloaded as soon as the network has no open
            // object.
            network.forget(this);
          }
        });
  }
}
