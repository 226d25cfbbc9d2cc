// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.communicator.SetupMessages.Kind;
import io.fluxccl.device.Device;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntConsumer;
import java.util.function.Supplier;

/**
 * The services of a {@link Communicator} for other layers: short messages, and a device for memory
 * of the host.
 */
abstract class PeerMessages {
  final SetupMessages messages;
  private volatile boolean endsTogether;
  private final List<IntConsumer> leaving = new CopyOnWriteArrayList<>();

  PeerMessages(SetupMessages messages) {
    this.messages = messages;
  }

  /** Opens the memory of peers. */
  abstract Memories memories();

  /**
   * Returns the device for memory that transports reach on the host, such as the values by which
   * hosts signal each other. It is this communicator's device if that is on the host, otherwise one
   * that is closed with this communicator. SHM, ETHERNET, NET and IB0 to IB7 reach its memory.
   */
  public final Device hostDevice() {
    return memories().hostDevice();
  }

  /** {@link Communicator#inFlight}. */
  abstract <T> CompletableFuture<T> inFlight(CompletableFuture<T> operation);

  /** {@link Communicator#verdict}. */
  abstract CompletableFuture<FluxCclException> verdict(FluxCclException reason);

  /**
   * Waits until a peer calls this method with the same tag. Then neither rank needs what they set
   * up together any longer.
   *
   * @param peer the rank
   * @param tag as in {@link Communicator#connectOnSetup}
   * @param deadline by when
   * @return completes when the peer has called it too; with the communicator's failure, or when the
   *     deadline has passed
   */
  public final CompletableFuture<Void> rendezvous(int peer, int tag, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return inFlight(messages.rendezvous(peer, tag, deadline));
  }

  /**
   * Exchanges a short message with one peer, which calls this method with the same tag. Exchanges
   * of one peer and tag match in the order of the calls.
   *
   * @param peer the other rank
   * @param tag as in connections; exchanges have tags of their own
   * @param mine this rank's message
   * @param deadline by when the peer must have called it
   * @return the peer's message, which is not trusted: check it
   */
  public final CompletableFuture<byte[]> exchange(
      int peer, int tag, byte[] mine, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return inFlight(messages.exchange(peer, tag, mine, deadline));
  }

  /**
   * Exchanges a short message with all ranks, each of which calls this method with the same tag: an
   * all-gather on the host. Exchanges with different tags may run at once and begin in any order;
   * exchanges with the same tag match in the order of the calls.
   *
   * @param tag 0 to 2^24 - 1; has nothing to do with the tags of connections
   * @param mine this rank's message
   * @param deadline by when every rank must have called it
   * @return the messages by rank, which are not trusted: check them. Fails with {@link
   *     io.fluxccl.Timeout} that names the first rank that did not call, or with the communicator's
   *     failure. Continuations may block
   */
  public final CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline) {
    messages.checkTag(tag);
    return inFlight(messages.exchangeAll(tag, mine, deadline));
  }

  /**
   * Exchanges a short message with all ranks, as {@link #exchange(int, byte[], Deadline)}, where a
   * rank may be unable to do its part. Then no rank waits for it: all end with its reason.
   *
   * @param operation for messages
   * @param part does this rank's part and returns its message; may block
   * @return the messages by rank, which are not trusted; or this rank's failure, or {@link
   *     io.fluxccl.RemoteFailure} naming the first rank that could not do its part
   */
  public final CompletableFuture<List<byte[]>> exchange(
      int tag, String operation, Supplier<byte[]> part, Deadline deadline) {
    messages.checkTag(tag);
    return inFlight(messages.exchangeAll(tag, operation, part, deadline));
  }

  /**
   * Exchanges the descriptions of one memory of each rank, and opens those of the peers. All ranks
   * call this method with the same tag, as {@link #exchange(int, byte[], Deadline)}.
   *
   * @param register returns this rank's memory; may block. The caller closes it
   * @return the memories by rank; the caller closes those of the peers. If one can't be opened
   *     here, all are closed, and the error names its rank. Continuations may block
   */
  public final CompletableFuture<RegisteredMemory[]> exchangeMemory(
      int tag, Supplier<RegisteredMemory> register, Deadline deadline) {
    AtomicReference<RegisteredMemory> mine = new AtomicReference<>();
    Supplier<byte[]> part =
        () -> {
          mine.set(register.get());
          return mine.get().serialize();
        };
    return exchange(tag, "exchangeMemory(tag=" + tag + ")", part, deadline)
        .thenApply(all -> memories().open(mine.get(), all))
        .exceptionallyCompose(
            failure ->
                verdict(FluxCclException.from(failure))
                    .thenCompose(CompletableFuture::failedFuture));
  }

  /**
   * Notes that all ranks have agreed to close their communicators now. Then no rank needs to notify
   * the others of that, which would connect every rank with every other.
   */
  public final void endTogether() {
    endsTogether = true;
  }

  /**
   * Adds an action that notifies one peer that this rank leaves.
   *
   * @param notify called with the peer, on any thread
   * @return removes the action
   */
  public final Runnable whenLeaving(IntConsumer notify) {
    leaving.add(notify);
    return () -> leaving.remove(notify);
  }

  /** Notifies peers that this rank leaves: they may wait for calls that it will not make. */
  public final void leaving(Collection<Integer> peers) {
    peers.forEach(peer -> leaving.forEach(notify -> notify.accept(peer)));
  }

  /** Returns whether {@link #endTogether} was called. */
  public final boolean endsTogether() {
    return endsTogether;
  }

  /**
   * Sends a peer a short, unsolicited notice. Still works after this communicator has failed,
   * unless the bootstrap has failed.
   *
   * @param peer the other rank
   * @param tag as in connections; notices have tags of their own
   * @param notice the message
   * @param deadline by when it must be handed to the network
   * @return completes when it is handed to the network
   */
  public final CompletableFuture<Void> sendNotice(
      int peer, int tag, byte[] notice, Deadline deadline) {
    messages.checkPeer(peer, tag);
    return messages.send(peer, Kind.NOTICE, tag, notice, deadline);
  }

  /**
   * Receives the next of a peer's notices, in the order in which they were sent.
   *
   * @param peer the other rank
   * @param tag the peer's tag
   * @param deadline by when it must have arrived
   * @return the peer's message, which is not trusted: check it
   */
  public final CompletableFuture<byte[]> recvNotice(int peer, int tag, Deadline deadline) {
    messages.checkPeer(peer, tag);
    String operation = "recvNotice(rank=" + peer + ", tag=" + tag + ")";
    return inFlight(messages.recv(peer, Kind.NOTICE, tag, operation, deadline));
  }
}
