// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.TransportFailure;
import java.util.concurrent.CompletableFuture;

/**
 * Sends messages of one bootstrap, and counts those that the network has not taken yet. Too many
 * fail the job: a lost message would leave its receiver waiting. Only on the event loop.
 */
final class Unsent {
  private final AbstractBootstrap bootstrap;
  private final WaitingBytes waiting;

  Unsent(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
    this.waiting = new WaitingBytes(bootstrap.nRanks(), WaitingBytes.LIMIT);
  }

  /** Sends to another rank; completes {@code done} when the network has the message. */
  void send(int peer, StreamKey key, Message message, CompletableFuture<Void> done) {
    if (!waiting.hasRoom(message)) {
      TransportFailure full = full(waiting.fullest());
      done.completeExceptionally(full);
      bootstrap.fail(full);
      return;
    }
    long bytes = WaitingBytes.of(message);
    waiting.add(peer, bytes);
    // Not done, which a deadline may end while the message still waits.
    CompletableFuture<Void> sent = new CompletableFuture<>();
    sent.whenComplete(
        (taken, failure) -> {
          waiting.add(peer, -bytes);
          if (failure == null) {
            done.complete(null);
          } else {
            done.completeExceptionally(failure);
          }
        });
    bootstrap.transmit(peer, key, message, sent);
  }

  private TransportFailure full(int peer) {
    return TransportFailure.of(
        peer,
        "%s: over %s bytes wait to be sent, most of them to rank %s, which does not take them; is it"
            + " stopped? Await the futures of sends before sending more",
        bootstrap.describe(),
        WaitingBytes.LIMIT,
        peer);
  }
}
