package io.fluxccl.transport.ib;

import io.fluxccl.transport.RdmaOptions;

/** Who is told what happens to a link; called by {@link VerbsPort#poll()}, on its thread. */
public interface LinkEvents {
  /** How its queues should be. */
  RdmaOptions options();

  /** A peer's request was admitted: this is the link it will be. */
  void requested(VerbsLink link);

  /** It can be posted on. */
  void established(VerbsLink link);

  /** The peer has closed its end, or is no more. */
  void disconnected(VerbsLink link);

  /**
   * It could not be connected.
   *
   * @param what the event or call that says so, with its status
   */
  void failed(VerbsLink link, String what);
}
