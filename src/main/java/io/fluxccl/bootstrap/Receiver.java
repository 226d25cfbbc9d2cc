package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;

/** Who waits for a message. Called on the event loop, at most one of the two, once. */
interface Receiver {
  /** Takes the message; false when it is wanted no more, and then it stays for the next. */
  boolean accept(Message message);

  /** There will be no message. */
  void fail(FluxCclException reason);
}
