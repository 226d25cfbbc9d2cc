package io.fluxccl.netplugin.ib;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Lets one thread at a time work with what verbs allow one thread only. Threads rarely meet here:
 * set-up, and a network that is closed while it is used. Who waits yields. Not reentrant.
 */
final class Turn {
  private final AtomicBoolean taken = new AtomicBoolean();

  /** Takes it unless another thread has it. */
  boolean tryTake() {
    return !taken.getOpaque() && taken.compareAndSet(false, true);
  }

  void take() {
    while (!tryTake()) {
      Thread.yield();
    }
  }

  void giveBack() {
    // Release; pairs with the acquire in the compare-and-set of the next.
    taken.setRelease(false);
  }
}
