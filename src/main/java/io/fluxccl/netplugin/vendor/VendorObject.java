package io.fluxccl.netplugin.vendor;

/** An object of a vendor's network, such as a listener, behind a gate; closed with the network. */
abstract class VendorObject<N extends VendorNetwork> implements AutoCloseable {
  private final N network;
  private final long object;
  private final CallGate gate;

  /**
   * @param object the native one
   * @param what it is, for messages
   */
  VendorObject(N network, long object, String what) {
    this.network = network;
    this.object = object;
    this.gate = new CallGate(what + " of " + network, network.patience());
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

  final CallGate gate() {
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
            // Not before: the plugin is unloaded once it knows of nothing that is open.
            network.forget(this);
          }
        });
  }
}
