package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import java.util.function.Consumer;

/**
 * Passes a bootstrap's failure on, until nobody wants to know any more: a bootstrap may outlive
 * many communicators, and keeps whoever waits for its failure. Thread-safe.
 */
final class FailureRelay implements Consumer<FluxCclException> {
  private volatile Consumer<FluxCclException> listener;

  FailureRelay(Consumer<FluxCclException> listener) {
    this.listener = listener;
  }

  @Override
  public void accept(FluxCclException reason) {
    Consumer<FluxCclException> current = listener;
    if (current != null) {
      current.accept(reason);
    }
  }

  /** Lets the listener go. */
  void stop() {
    listener = null;
  }
}
