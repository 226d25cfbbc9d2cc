// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** Receives the description of a memory of a peer and opens it. */
final class MemoryReceiver extends PeerSetup<RegisteredMemory> {
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
    return receive(SetupMessages.Kind.MEMORY, deadline)
        .thenApply(bytes -> open.apply(RegisteredMemoryCodec.decode(bytes, peer)))
        .thenAccept(memory -> deliver(memory, memory::close))
        .exceptionally(
            failure -> {
              throw explained(failure, deadline);
            });
  }
}
