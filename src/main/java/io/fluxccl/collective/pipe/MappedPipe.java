// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.pipe;

import static io.fluxccl.collective.pipe.SlotRing.NUMBER_OFFSET;
import static io.fluxccl.collective.pipe.SlotRing.PAYLOAD_OFFSET;
import static io.fluxccl.collective.pipe.SlotRing.SLOTS;
import static io.fluxccl.collective.pipe.SlotRing.TAKEN_OFFSET;
import static io.fluxccl.collective.pipe.SlotRing.WORD_OFFSET;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;
import java.util.function.IntConsumer;

/**
 * A pipe between ranks that map each other's memory. A message's number and the signature of its
 * call are stored next to its bytes, so one cache line carries a small message.
 *
 * <p>Both ends agree on the sequence of messages, because both run the calls that involve the two
 * of them in the same order. A slot is written again only after its reader has reported that it
 * took the message before. A receiver reports the number of messages that it has taken in each
 * message that it sends. It also reports it in a word of its own after every half of the slots,
 * because a sender that waits for a slot may not read those messages.
 */
public final class MappedPipe implements Pipe {
  /** A slot's previous number is less by the number of slots, so 32 bits distinguish the two. */
  private static final long NUMBER_MASK = 0xffff_ffffL;

  private final int peer;
  private final int slotBytes;
  private final long toPeer;
  private final long fromPeer;
  private final long abortAddress;
  private final IntConsumer onOtherCall;
  private long signature; // in the high half
  private long expected; // likewise
  private boolean hasOtherCall;
  private long sent;
  private long sentAndTaken; // as far as this rank knows
  private long taken;

  /**
   * Creates one end of a pipe.
   *
   * @param peer the rank at the other end
   * @param ring layout of both directions
   * @param toPeer address of the ring in the peer's memory, which this rank writes
   * @param fromPeer address of the ring in this rank's memory, which the peer writes
   * @param abortAddress the abort flag that waits watch
   * @param onOtherCall called once with the peer, if a message of another call arrives
   */
  public MappedPipe(
      int peer,
      SlotRing ring,
      long toPeer,
      long fromPeer,
      long abortAddress,
      IntConsumer onOtherCall) {
    this.peer = peer;
    this.slotBytes = ring.slotBytes();
    this.toPeer = toPeer;
    this.fromPeer = fromPeer;
    this.abortAddress = abortAddress;
    this.onOtherCall = onOtherCall;
  }

  @Override
  public void begin(int sentSignature, int expectedSignature) {
    signature = (long) sentSignature << Integer.SIZE;
    expected = (long) expectedSignature << Integer.SIZE;
  }

  /** Returns the most bytes of a message, a multiple of the cache line. */
  public int payloadBytes() {
    return slotBytes - PAYLOAD_OFFSET;
  }

  /** Returns the rank at the other end. */
  public int peer() {
    return peer;
  }

  private long slot(long ring, long number) {
    return ring + CacheLines.LENGTH + (number & SLOTS - 1) * slotBytes;
  }

  /** Returns whether {@link #publish} may be called. */
  public boolean hasRoom() {
    if (sent - sentAndTaken < SLOTS) {
      return true;
    }
    // Pairs with the release in release(): the peer has read the messages that it took.
    sentAndTaken = Math.max(sentAndTaken, HostMemory.getLongAcquire(fromPeer));
    return sent - sentAndTaken < SLOTS;
  }

  /** Returns the address of the slot to send next, whose header and payload may be written. */
  public long slotToSend() {
    return slot(toPeer, sent);
  }

  @Override
  public long claim() {
    int step = 0;
    while (!hasRoom()) {
      step = SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return 0;
      }
    }
    return slotToSend() + PAYLOAD_OFFSET;
  }

  /**
   * {@inheritDoc}
   *
   * <p>The receiver finds the argument in {@link #wordToTake}; it bounds nothing here.
   */
  @Override
  public void publish(long word) {
    long slot = slotToSend();
    HostMemory.putLong(slot + WORD_OFFSET, word);
    HostMemory.putLong(slot + TAKEN_OFFSET, taken);
    sent++;
    // Pairs with the acquire in the peer's hasMessage().
    HostMemory.putLongRelease(slot + NUMBER_OFFSET, signature | sent & NUMBER_MASK);
  }

  /** Returns whether a message of this rank's call has arrived. */
  public boolean hasMessage() {
    // Pairs with the release in the peer's publish(): the slot's bytes are visible.
    long mark = HostMemory.getLongAcquire(slotToTake() + NUMBER_OFFSET);
    if (mark == (expected | taken + 1 & NUMBER_MASK)) {
      return true;
    }
    if ((int) mark == (int) (taken + 1)) {
      reportOtherCall();
    }
    return false;
  }

  private void reportOtherCall() {
    if (!hasOtherCall) {
      hasOtherCall = true;
      onOtherCall.accept(peer);
    }
  }

  /** Returns the address of the slot of the message to take. */
  public long slotToTake() {
    return slot(fromPeer, taken);
  }

  /** Returns the argument of the peer's {@link #publish} of the message to take. */
  public long wordToTake() {
    return HostMemory.getLong(slotToTake() + WORD_OFFSET);
  }

  @Override
  public long take() {
    int step = 0;
    while (!hasMessage()) {
      step = SpinWait.step(step, abortAddress, peer);
      if (step < 0) {
        return 0;
      }
    }
    return slotToTake() + PAYLOAD_OFFSET;
  }

  @Override
  public void release() {
    sentAndTaken = Math.max(sentAndTaken, HostMemory.getLong(slotToTake() + TAKEN_OFFSET));
    taken++;
    if (taken % (SLOTS / 2) == 0) {
      // Pairs with the acquire in the peer's hasRoom().
      HostMemory.putLongRelease(toPeer, taken);
    }
  }
}
