package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Gathers one block of each of some ranks at each of them: every rank gives its block to the next
 * in the ring and passes on what it receives, n - 1 times. The block that is missing therefore
 * belongs to the rank that everybody waits for. Only on the event loop.
 */
final class RingGather implements Receiver {
  private final AbstractBootstrap bootstrap;
  private final List<Integer> ranks;
  private final int position;
  private final StreamKey outbound;
  private final StreamKey inbound;
  private final int next;
  private final byte[][] blocks;
  private final CompletableFuture<List<byte[]>> done = new CompletableFuture<>();
  private int received;

  RingGather(AbstractBootstrap bootstrap, List<Integer> ranks, StreamKey key) {
    this.bootstrap = bootstrap;
    this.ranks = ranks;
    this.position = ranks.indexOf(bootstrap.rank());
    int size = ranks.size();
    this.next = ranks.get((position + 1) % size);
    this.outbound = key.from(bootstrap.rank());
    this.inbound = key.from(ranks.get((position + size - 1) % size));
    this.blocks = new byte[size][];
  }

  /** All blocks, in the order of the ranks. */
  CompletableFuture<List<byte[]>> done() {
    return done;
  }

  void start(byte[] mine) {
    blocks[position] = mine;
    if (blocks.length == 1) {
      finish();
      return;
    }
    bootstrap.post(next, outbound, Message.of(mine), new CompletableFuture<>());
    bootstrap.receive(inbound, this);
  }

  /** The rank whose block is awaited. */
  int awaited() {
    return ranks.get(awaitedPosition());
  }

  /** Ends it here; what still comes for it is dropped. */
  void abandon() {
    bootstrap.abandon(inbound, this);
  }

  private int awaitedPosition() {
    return Math.floorMod(position - 1 - received, blocks.length);
  }

  @Override
  public boolean accept(Message message) {
    // A loop, not a recursion: hundreds of blocks may be here already.
    for (Message each = message; each != null; each = bootstrap.poll(inbound)) {
      if (each.broken()) {
        fail(
            new RemoteFailure(
                each.culprit(),
                bootstrap.describe()
                    + ": rank "
                    + each.culprit()
                    + " left before giving its part"));
        return true;
      }
      blocks[awaitedPosition()] = each.bytes();
      received++;
      if (received < blocks.length - 1) {
        bootstrap.post(next, outbound, each, new CompletableFuture<>());
      } else {
        finish();
        return true;
      }
    }
    bootstrap.receive(inbound, this);
    return true;
  }

  @Override
  public void fail(FluxCclException reason) {
    if (reason instanceof RemoteFailure) {
      // The ranks behind would wait in vain for what should come through this one.
      bootstrap.post(next, outbound, Message.brokenBy(reason.rank()), new CompletableFuture<>());
    }
    done.completeExceptionally(reason);
  }

  private void finish() {
    done.complete(Collections.unmodifiableList(Arrays.asList(blocks)));
  }
}
