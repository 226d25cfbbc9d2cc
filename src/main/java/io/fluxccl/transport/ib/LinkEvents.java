package io.fluxccl.transport.ib;

import io.fluxccl.transport.RdmaOptions;

/** Receives the events of a link; called by {@link VerbsPort#poll()}, on its thread. */
public interface LinkEvents {
  /** Returns the options of the link's queues. */
  RdmaOptions options();

  /** A peer's request was admitted, and this is its link. */
  void requested(VerbsLink link);

  /** The link is connected and takes requests. */
  void established(VerbsLink link);

  /** The peer has closed its end, or its process has ended. */
  void disconnected(VerbsLink link);

  /**
   * The link could not be connected.
   *
   * @param reason the failed event or call, with its status
   */
  void failed(VerbsLink link, String reason);
}
