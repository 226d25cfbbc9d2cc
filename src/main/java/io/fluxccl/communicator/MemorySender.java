package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.CompletableFuture;

/** Sends the description of a memory of this rank to a peer. */
final class MemorySender implements Setupable {
  private final SetupMessages messages;
  private final RegisteredMemory memory;
  private final int peer;
  private final int tag;
  private CompletableFuture<Void> sent = CompletableFuture.completedFuture(null);

  MemorySender(SetupMessages messages, RegisteredMemory memory, int peer, int tag) {
    this.messages = messages;
    this.memory = memory;
    this.peer = peer;
    this.tag = tag;
  }

  @Override
  public void beginSetup(Deadline deadline) {
    sent = messages.send(peer, SetupMessages.Kind.MEMORY, tag, memory.serialize(), deadline);
  }

  @Override
  public CompletableFuture<Void> endSetup(Deadline deadline) {
    return sent.exceptionally(
        failure -> {
          throw SetupMessages.explain(FluxCclException.from(failure), peer, describe(), deadline);
        });
  }

  @Override
  public String describe() {
    return "sendMemoryOnSetup(rank=" + peer + ", tag=" + tag + ")";
  }

  @Override
  public void fail(Throwable reason) {
    sent.completeExceptionally(reason);
  }
}
