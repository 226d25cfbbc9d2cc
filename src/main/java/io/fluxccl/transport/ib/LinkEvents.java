package io.fluxccl.transport.ib;

import io.fluxccl.transport.RdmaOptions;

/** Receives the events of a link. {@link VerbsPort#poll()} calls it on its own thread. */
public interface LinkEvents {
  /** Returns the options of the link's queues. */
  RdmaOptions options();

  /** Called when a peer's connection request was admitted, with the link to that peer. */
  void requested(VerbsLink link);

  /** Called when the link is connected and accepts requests. */
  void established(VerbsLink link);

  /** Called when the peer has closed its end, or its process has ended. */
  void disconnected(VerbsLink link);

  /**
   * Called when the link could not be connected.
   *
   * @param reason the failed event or call, with its status
   */
  void failed(VerbsLink link, String reason);
}
