// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.CompletableFuture;

/** Sends the description of a memory of this rank to a peer. */
final class MemorySender extends PeerSetup<Void> {
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
    return sent.exceptionally(
        failure -> {
          throw explained(failure, deadline);
        });
  }
}
