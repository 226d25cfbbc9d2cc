// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.trace.FlightEvents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * An operation of this rank with a peer, for which one message is sent or received.
 *
 * @param <T> its result
 */
abstract class PeerSetup<T> implements SetupOperation {
  final SetupMessages messages;
  final int peer;
  final int tag;
  private final String description;
  private final NonblockingFuture<T> result;
  private volatile CompletableFuture<?> message;

  /**
   * @param description the operation for diagnostics
   */
  PeerSetup(SetupMessages messages, int peer, int tag, String description) {
    this.messages = messages;
    this.peer = peer;
    this.tag = tag;
    this.description = description;
    this.result = NonblockingFuture.queued(description);
  }

  final NonblockingFuture<T> result() {
    return result;
  }

  @Override
  public void beginSetup(Deadline deadline) {
    result.start();
    long beganNs = System.nanoTime();
    result.whenComplete(
        (done, failure) ->
            FlightEvents.setUp(
                messages.rank(), peer, description, System.nanoTime() - beganNs, failure));
  }

  /** Receives the peer's message, unless the operation fails first. */
  final CompletableFuture<byte[]> receive(SetupMessages.Kind kind, Deadline deadline) {
    return await(messages.recv(peer, kind, tag, description, deadline));
  }

  /** Waits for a message, unless the operation fails first. */
  final <M> CompletableFuture<M> await(CompletableFuture<M> pending) {
    message = pending;
    return pending;
  }

  /** Returns a failure of a part of this operation, which knows nothing of the operation. */
  final FluxCclException explained(Throwable failure, Deadline deadline) {
    FluxCclException reason = FluxCclException.from(failure);
    return String.valueOf(reason.getMessage()).startsWith(description)
        ? reason
        : SetupMessages.explain(reason, peer, description, deadline);
  }

  /** Returns the end of a part of this operation, whose failure is {@link #explained}. */
  final <M> CompletableFuture<M> explaining(CompletableFuture<M> part, Deadline deadline) {
    return part.exceptionally(
        failure -> {
          throw explained(failure, deadline);
        });
  }

  /** Completes the result, or closes what it would have been if the operation has failed. */
  final void deliver(T value, Runnable close) {
    if (!result.complete(value)) {
      close.run();
    }
  }

  @Override
  public final String describe() {
    return description;
  }

  @Override
  public final void fail(Throwable reason) {
    result.start();
    result.completeExceptionally(reason);
    if (message != null) {
      message.completeExceptionally(reason);
    }
  }

  /** Sends the description of a memory of this rank to a peer. */
  static final class MemorySender extends PeerSetup<Void> {
    private final RegisteredMemory memory;
    private CompletableFuture<Void> sent;

    MemorySender(SetupMessages messages, RegisteredMemory memory, int peer, int tag) {
      super(messages, peer, tag, "sendMemoryOnSetup(rank=" + peer + ", tag=" + tag + ")");
      this.memory = memory;
    }

    @Override
    public void beginSetup(Deadline deadline) {
      byte[] description = memory.serialize();
      sent = await(messages.send(peer, SetupMessages.Kind.MEMORY, tag, description, deadline));
    }

    @Override
    public CompletableFuture<Void> endSetup(Deadline deadline) {
      return explaining(sent, deadline);
    }
  }

  /** Receives the description of a memory of a peer and opens it. */
  static final class MemoryReceiver extends PeerSetup<RegisteredMemory> {
    private final Function<RegisteredMemoryCodec.Decoded, RegisteredMemory> open;

    MemoryReceiver(
        SetupMessages messages,
        Function<RegisteredMemoryCodec.Decoded, RegisteredMemory> open,
        int peer,
        int tag) {
      super(messages, peer, tag, "recvMemoryOnSetup(rank=" + peer + ", tag=" + tag + ")");
      this.open = open;
    }

    @Override
    public CompletableFuture<Void> endSetup(Deadline deadline) {
      return explaining(
          receive(SetupMessages.Kind.MEMORY, deadline)
              .thenApply(bytes -> open.apply(RegisteredMemoryCodec.decode(bytes, peer)))
              .thenAccept(memory -> deliver(memory, memory::close)),
          deadline);
    }
  }
}
