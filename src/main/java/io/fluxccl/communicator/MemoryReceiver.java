package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** Receives the description of a memory of a peer and opens it. */
final class MemoryReceiver implements Setupable {
  private final SetupMessages messages;
  private final Function<RegisteredMemoryCodec.Decoded, RegisteredMemory> open;
  private final int peer;
  private final int tag;
  private final NonblockingFuture<RegisteredMemory> result;
  private volatile CompletableFuture<byte[]> answer;

  MemoryReceiver(
      SetupMessages messages,
      Function<RegisteredMemoryCodec.Decoded, RegisteredMemory> open,
      int peer,
      int tag) {
    this.messages = messages;
    this.open = open;
    this.peer = peer;
    this.tag = tag;
    this.result = NonblockingFuture.queued(describe());
  }

  NonblockingFuture<RegisteredMemory> result() {
    return result;
  }

  @Override
  public void beginSetup(Deadline deadline) {
    result.start();
  }

  @Override
  public CompletableFuture<Void> endSetup(Deadline deadline) {
    answer = messages.recv(peer, SetupMessages.Kind.MEMORY, tag, describe(), deadline);
    return answer.thenAccept(bytes -> deliver(open(bytes, deadline)));
  }

  private RegisteredMemory open(byte[] bytes, Deadline deadline) {
    try {
      return open.apply(RegisteredMemoryCodec.decode(bytes, peer));
    } catch (RuntimeException | Error e) {
      throw SetupMessages.explain(FluxCclException.from(e), peer, describe(), deadline);
    }
  }

  private void deliver(RegisteredMemory memory) {
    if (!result.complete(memory)) {
      memory.close();
    }
  }

  @Override
  public String describe() {
    return "recvMemoryOnSetup(rank=" + peer + ", tag=" + tag + ")";
  }

  @Override
  public void fail(Throwable reason) {
    result.start();
    result.completeExceptionally(reason);
    if (answer != null) {
      answer.completeExceptionally(reason);
    }
  }
}
