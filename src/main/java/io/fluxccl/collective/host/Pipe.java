package io.fluxccl.collective.host;

import static io.fluxccl.collective.host.PipeDescriptor.CACHE_LINE;
import static io.fluxccl.collective.host.PipeDescriptor.EXPECTED_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.FLAGS_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.INPUT_ID_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.INPUT_OFFSET_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.INPUT_SHOWN_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.MESSAGE_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.NUMBER_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.OUTPUT_ID_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.OUTPUT_OFFSET_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.OUTPUT_SHOWN_OFFSET;
import static io.fluxccl.collective.host.PipeDescriptor.SLOTS;
import static io.fluxccl.collective.host.PipeDescriptor.TAKEN_OFFSET;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;

/**
 * Items to and from one peer, each way in order: what everything between two ranks is made of. An
 * item is a piece of data, a card, or nothing but the news that there is one.
 *
 * <p>Two invariants make it right whatever mix of collectives runs over it. Both ends agree on the
 * sequence of items, because both do the calls that involve the two of them in the same order. And
 * a slot is written again only when its reader is known to have taken what was there: it says how
 * many it took in each item it sends back, or in a word of its own when it has sent none for half
 * the slots.
 *
 * <p>The counts live here, on the side of the kernel: a recorded call may be run again. Used by the
 * one kernel thread that has the strand.
 */
final class Pipe {
  private final int peer;
  private final long toPeer;
  private final long fromPeer;

  private long sent;
  private long sentAndTaken; // as far as known
  private long taken;
  private long told; // of the taken

  /**
   * Between two ranks.
   *
   * @param peer the other
   * @param toPeer address of the pipe in the peer's arena that this rank writes
   * @param fromPeer address of the pipe in this rank's arena that the peer writes
   */
  Pipe(int peer, long toPeer, long fromPeer) {
    this.peer = peer;
    this.toPeer = toPeer;
    this.fromPeer = fromPeer;
  }

  int peer() {
    return peer;
  }

  /** Whether {@link #send} may be called. */
  boolean hasRoom() {
    if (sent - sentAndTaken < SLOTS) {
      return true;
    }
    // Pairs with the release in take(): the peer has read what it took.
    sentAndTaken = Math.max(sentAndTaken, HostMemory.getLongAcquire(fromPeer));
    return sent - sentAndTaken < SLOTS;
  }

  /** Waits for room; false if aborted. */
  boolean awaitRoom(long abortAddress) {
    int step = 0;
    while (!hasRoom()) {
      step = SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return false;
      }
    }
    return true;
  }

  /** Where the next item's payload is to be written before {@link #send}. */
  long payloadToSend() {
    return slotToSend() + CACHE_LINE;
  }

  private long slotToSend() {
    return toPeer + PipeDescriptor.slot(sent);
  }

  /**
   * Hands the next item over.
   *
   * @param message bytes of the whole message that it is a piece of; nobody looks at it in
   *     reductions
   */
  void send(long message) {
    long slot = slotToSend();
    HostMemory.putLong(slot + MESSAGE_OFFSET, message);
    HostMemory.putLong(slot + TAKEN_OFFSET, taken);
    told = taken;
    sent++;
    // Pairs with the acquire in the peer's hasItem().
    HostMemory.putLongRelease(slot + NUMBER_OFFSET, sent);
  }

  /** Says what this rank's buffers are, and hands that over. */
  void sendCard(Card card) {
    long slot = slotToSend();
    HostMemory.putInt(slot + INPUT_ID_OFFSET, card.inputId);
    HostMemory.putInt(slot + OUTPUT_ID_OFFSET, card.outputId);
    HostMemory.putLong(slot + INPUT_OFFSET_OFFSET, card.inputOffset);
    HostMemory.putLong(slot + OUTPUT_OFFSET_OFFSET, card.outputOffset);
    HostMemory.putInt(slot + FLAGS_OFFSET, card.flags);
    HostMemory.putLong(slot + EXPECTED_OFFSET, card.expected);
    if (card.input.isThere()) {
      card.input.write(slot + INPUT_SHOWN_OFFSET);
    }
    if (card.output.isThere()) {
      card.output.write(slot + OUTPUT_SHOWN_OFFSET);
    }
    send(~card.sent);
  }

  private long slotToTake() {
    return fromPeer + PipeDescriptor.slot(taken);
  }

  /** Whether there is an item to take. */
  boolean hasItem() {
    // Pairs with the release in the peer's send(): what it wrote into the slot is visible.
    return HostMemory.getLongAcquire(slotToTake() + NUMBER_OFFSET) == taken + 1;
  }

  /** Waits for an item; false if aborted. */
  boolean awaitItem(long abortAddress) {
    int step = 0;
    while (!hasItem()) {
      step = SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return false;
      }
    }
    return true;
  }

  /** Where the payload of the item to take is. */
  long payloadToTake() {
    return slotToTake() + CACHE_LINE;
  }

  /** Bytes of the whole message that the item to take is a piece of; less than 0 of a card. */
  long messageToTake() {
    return HostMemory.getLong(slotToTake() + MESSAGE_OFFSET);
  }

  /** Reads the card that is to be taken. */
  void readCard(Card card) {
    long slot = slotToTake();
    card.inputId = HostMemory.getInt(slot + INPUT_ID_OFFSET);
    card.outputId = HostMemory.getInt(slot + OUTPUT_ID_OFFSET);
    card.inputOffset = HostMemory.getLong(slot + INPUT_OFFSET_OFFSET);
    card.outputOffset = HostMemory.getLong(slot + OUTPUT_OFFSET_OFFSET);
    card.flags = HostMemory.getInt(slot + FLAGS_OFFSET);
    card.sent = ~messageToTake();
    card.expected = HostMemory.getLong(slot + EXPECTED_OFFSET);
    card.input.hide();
    if ((card.flags & Card.INPUT_SHOWN) != 0) {
      card.input.read(slot + INPUT_SHOWN_OFFSET);
    }
    card.output.hide();
    if ((card.flags & Card.OUTPUT_SHOWN) != 0) {
      card.output.read(slot + OUTPUT_SHOWN_OFFSET);
    }
  }

  /** Takes the item: its slot may be written again. */
  void take() {
    sentAndTaken = Math.max(sentAndTaken, HostMemory.getLong(slotToTake() + TAKEN_OFFSET));
    taken++;
    if (taken - told >= SLOTS / 2) {
      told = taken;
      // Pairs with the acquire in the peer's hasRoom().
      HostMemory.putLongRelease(toPeer, taken);
    }
  }

  /**
   * Meets all peers: what each wrote before, all see after. False if aborted.
   *
   * @param pipes by peer; this rank's is not looked at
   * @param rank this rank
   */
  static boolean meet(Pipe[] pipes, int rank, long abortAddress) {
    for (int i = 1; i < pipes.length; i++) {
      Pipe pipe = pipes[(rank + i) % pipes.length];
      if (!pipe.awaitRoom(abortAddress)) {
        return false;
      }
      pipe.send(0);
    }
    for (int i = 1; i < pipes.length; i++) {
      Pipe pipe = pipes[(rank + i) % pipes.length];
      if (!pipe.awaitItem(abortAddress)) {
        return false;
      }
      pipe.take();
    }
    return true;
  }
}
