package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;

/** Completes a future with the message; a message that a cancelled one doesn't take is not lost. */
class FutureReceiver implements Receiver {
  private final AbstractBootstrap bootstrap;
  private final CompletableFuture<byte[]> done;

  FutureReceiver(AbstractBootstrap bootstrap, CompletableFuture<byte[]> done) {
    this.bootstrap = bootstrap;
    this.done = done;
  }

  @Override
  public boolean accept(Message message) {
    if (message.broken()) {
      return done.completeExceptionally(bootstrap.left(message.culprit()));
    }
    return done.complete(message.bytes());
  }

  @Override
  public void fail(FluxCclException reason) {
    done.completeExceptionally(reason);
  }
}
