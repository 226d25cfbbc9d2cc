// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * One end of a connection that is made when either end first posts. That end sends its endpoint's
 * bytes; the other end answers with its own; then both connect. So both ends do the same, whichever
 * posts first, and ends that never post cost no message and no socket.
 *
 * <pre>message = int64 number of the sender's user   bytes of the endpoint</pre>
 */
final class OnDemandConnect {
  private static final long NEWS_MILLIS = 300;

  /**
   * The numbers of the connection's users, which the two ranks have exchanged. They distinguish
   * messages to this user from those to an earlier user of the same tag.
   *
   * @param own of this rank's user
   * @param peer of the peer's user
   */
  record Numbers(long own, long peer) {}

  private static final int MAX_WIRE_LENGTH = 64 * 1024;

  private final SetupMessages messages;
  private final Supplier<Endpoint> makeEndpoint;
  private final int peer;
  private final int tag;
  private final EndpointConfig config;
  private final Numbers numbers;
  private final Consumer<FluxCclException> abort;
  private final String description;
  private final AtomicBoolean demanded = new AtomicBoolean();

  /** The peer's endpoint. */
  private final CompletableFuture<byte[]> answer = new CompletableFuture<>();

  private Endpoint endpoint;
  private volatile CompletableFuture<byte[]> listening;

  /**
   * Describes a connection that {@link #begin} makes.
   *
   * @param config with the limit from the first post until the ends are connected
   * @param abort called with the reason if they can't be connected
   */
  OnDemandConnect(
      SetupMessages messages,
      Supplier<Endpoint> makeEndpoint,
      int peer,
      int tag,
      EndpointConfig config,
      Numbers numbers,
      Consumer<FluxCclException> abort) {
    this.messages = messages;
    this.makeEndpoint = makeEndpoint;
    this.peer = peer;
    this.tag = tag;
    this.config = config;
    this.numbers = numbers;
    this.abort = abort;
    this.description =
        Text.of("connectOnDemand(rank=%d, tag=%d, %s)", peer, tag, config.transport());
  }

  /** Returns the connection; empty if the transport connects at set-up only. */
  Optional<Connection> begin() {
    try {
      endpoint = makeEndpoint.get();
    } catch (RuntimeException e) {
      FluxCclException reason = FluxCclException.from(e);
      throw reason.withMessage(description + ": " + reason.getMessage());
    }
    Optional<Connection> connection = endpoint.onDemand(this::demand);
    if (connection.isEmpty()) {
      endpoint.close();
    } else if (!connection.get().isInUse()) {
      listen();
      connection.get().failed().thenRun(this::stop);
    }
    return connection;
  }

  private void listen() {
    CompletableFuture<byte[]> next =
        messages.recv(peer, SetupMessages.Kind.DEMAND, tag, description, Deadline.never());
    listening = next;
    next.whenComplete(
        (message, failure) -> {
          if (failure != null) {
            answer.completeExceptionally(failure);
          } else {
            arrived(message);
          }
        });
  }

  private void arrived(byte[] message) {
    try {
      WireReader in =
          new WireReader(
              message,
              problem -> TransportFailure.of(peer, "%s: malformed: %s", description, problem));
      boolean isForThis = in.int64("number") == numbers.peer();
      byte[] wire = in.bytes("endpoint", MAX_WIRE_LENGTH);
      in.end();
      if (isForThis) {
        demand();
        answer.complete(wire);
      } else {
        listen();
      }
    } catch (FluxCclException e) {
      answer.completeExceptionally(e);
      abort.accept(e);
    }
  }

  /** Sends this end to the peer, and connects to the peer's end, once. Any thread. */
  private void demand() {
    if (!demanded.compareAndSet(false, true)) {
      return;
    }
    Deadline deadline = Deadline.after(config.connectTimeout());
    byte[] message = new WireWriter().int64(numbers.own()).bytes(endpoint.wire()).toBytes();
    messages
        .send(peer, SetupMessages.Kind.DEMAND, tag, message, deadline)
        .thenCompose(sent -> answer)
        .orTimeout(deadline.remainingNanos(), TimeUnit.NANOSECONDS)
        .thenCompose(wire -> endpoint.connect(wire, deadline))
        .whenComplete(
            (connection, failure) -> {
              if (failure != null) {
                failed(failure, deadline);
              }
            });
  }

  /** Fails the job: posted writes can't be sent, and peers wait for them. */
  private void failed(Throwable failure, Deadline deadline) {
    FluxCclException reason =
        failure instanceof TimeoutException || failure.getCause() instanceof TimeoutException
            ? Timeout.of(
                peer,
                "%s: rank %d did not answer within %d ms; does it use the same lane?",
                description,
                peer,
                deadline.timeout().toMillis())
            : SetupMessages.explain(FluxCclException.from(failure), peer, description, deadline);
    // After a local close, no caller waits for this connection.
    if (reason instanceof RemoteFailure) {
      // The peer may have left because of a death, whose report this rank is about to receive.
      CompletableFuture.delayedExecutor(NEWS_MILLIS, TimeUnit.MILLISECONDS, BlockingTasks.EXECUTOR)
          .execute(() -> abort.accept(reason));
    } else if (!(reason instanceof Aborted)) {
      abort.accept(reason);
    }
    endpoint.close();
  }

  /** Stops listening, because the connection has ended. */
  private void stop() {
    demanded.set(true);
    answer.cancel(false);
    listening.cancel(false);
  }
}
