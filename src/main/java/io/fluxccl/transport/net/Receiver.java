// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;

/**
 * Receives the peer's messages and executes them in order; a message that is done frees its head.
 * Bodies are received ahead of their turn, unless one would write a range that an earlier message
 * has still to write. Confined to the agent; allocates nothing in steady state.
 */
final class Receiver implements Link.HeadReader {
  private static final int NO_SLOT = -1;
  private static final int SCRATCH_BYTES = 64 << 10;

  private final NetConnection connection;
  private final Sender sender;
  private final Link link;
  private final Heads heads;
  private final ReceivedBodies bodies;
  private final int capacity;

  /** The slot of each message's bytes in {@link #bodies}, or {@link #NO_SLOT}. */
  private final int[] slots;

  // The numbers of messages whose heads have arrived, of those whose bytes are in flight, and of
  // those done.
  private long arrived;
  private long started;
  private long done;

  /** The number of numbered messages that have arrived in full. */
  private long received;

  /** The number of messages whose heads have arrived and whose bodies have not. */
  private int bodiesDue;

  /** The length of the payload of the head that is arriving. */
  private int payload;

  /** The bytes still to receive of a body that is dropped, and the place for them. */
  private long toDiscard;

  private ByteBuffer scratch;

  /** True if the peer's final message has arrived; earlier ones may not be done. */
  private boolean finalMessageReceived;

  Receiver(NetConnection connection, Link link, Heads heads, Sender sender, Staging staging) {
    this.connection = connection;
    this.sender = sender;
    this.link = link;
    this.heads = heads;
    this.capacity = heads.capacity();
    this.slots = new int[capacity];
    // One request of the limit is reserved for the flush that follows a receive.
    this.bodies = new ReceivedBodies(capacity - 1, staging, link);
  }

  /** Returns the number of messages whose heads have arrived, with those that only confirm. */
  long arrived() {
    return arrived;
  }

  /** Returns whether the peer's final message has arrived; earlier ones may not be done. */
  boolean hasFinalMessage() {
    return finalMessageReceived;
  }

  /** Returns the number of numbered messages that have arrived in full. */
  long received() {
    return received;
  }

  /**
   * Returns whether messages are read as they arrive; false while earlier ones must be done first.
   */
  boolean isReading() {
    return arrived - done < capacity && (bodiesDue == 0 || started == arrived);
  }

  /** Drops the message whose body is arriving on a lost link; the peer sends it again. */
  void interrupt() {
    if (bodiesDue > 0) {
      bodiesDue = 0;
      arrived--;
      if (started > arrived) {
        started = arrived;
        bodies.cancel(slots[slot(arrived)]);
      }
    }
  }

  /** Advances all messages, and returns the work count. */
  int progress() {
    try {
      return advance();
    } catch (RemoteFailure | TransportFailure | CorruptMessage e) {
      if (link.keepsOrder()) {
        interrupt();
        progressArrived();
      }
      throw e;
    }
  }

  /**
   * Executes messages that arrived in full before the link was lost, and returns the work count.
   */
  int progressArrived() {
    int work = 0;
    for (int moved = 1; moved > 0; work += moved) {
      moved = start() + finish();
    }
    return work;
  }

  private int advance() {
    int work = arrive();
    int moved = 1;
    // A write over an earlier one, or its body, starts only when that is done: repeat on progress.
    for (int turn = 0; moved > 0 && turn < capacity; turn++) {
      moved = start() + receiveBodies() + finish();
      if (moved > 0) {
        moved += arrive();
      }
      work += moved;
    }
    return work;
  }

  /**
   * Receives messages of the peer without executing them, until its final message, and returns the
   * work count. A socket that is closed with unread bytes would discard what this end has sent.
   */
  int discard() {
    int work = 0;
    int moved = 1;
    for (int turn = 0; moved > 0 && turn < capacity; turn++) {
      if (bodiesDue > 0 && !isBodyDiscarded()) {
        return work;
      }
      if (link.keepsOrder()) {
        started = arrived;
        done = arrived;
      }
      moved = arrive();
      work += moved;
    }
    return work;
  }

  /** Receives the due body of a link that keeps its order, and drops it. */
  private boolean isBodyDiscarded() {
    if (!link.keepsOrder()) {
      return true;
    }
    long message = arrived - 1;
    if (started < arrived) {
      started = arrived;
      toDiscard = heads.length(message);
      discardPart(message);
    }
    while (link.isReceived(NO_SLOT)) {
      if (toDiscard == 0) {
        bodiesDue--;
        receivedInFull(message);
        return true;
      }
      discardPart(message);
    }
    return false;
  }

  private void discardPart(long message) {
    if (scratch == null) {
      scratch = ByteBuffer.allocateDirect(SCRATCH_BYTES);
    }
    int length = (int) Math.min(toDiscard, SCRATCH_BYTES);
    toDiscard -= length;
    long address = BufferUtil.address(scratch);
    link.receiveBody(NO_SLOT, heads.address(message), null, address, length);
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int arrive() {
    int work = 0;
    // The peer may close the link after its final message: reading on would report a loss.
    while (!finalMessageReceived
        && arrived - done < capacity
        && !(bodiesDue > 0 && link.keepsOrder())
        && link.receiveHead(heads.address(arrived), this)) {
      check(arrived);
      if (heads.hasBody(arrived)) {
        bodiesDue++;
      } else {
        receivedInFull(arrived);
      }
      arrived++;
      work++;
    }
    return work;
  }

  @Override
  public int payload(long head) {
    payload = heads.checkHeader(arrived, received);
    return payload;
  }

  private void receivedInFull(long message) {
    if (heads.type(message) != ControlMessage.CONFIRM) {
      received++;
    }
    if (heads.asksConfirmation(message)) {
      sender.confirm();
    }
  }

  private void check(long message) {
    heads.check(message, payload);
    slots[slot(message)] = NO_SLOT;
    sender.confirmed(heads.received(message));
    int type = heads.type(message);
    if (type == ControlMessage.ACK) {
      connection.acknowledged(heads.value(message));
    } else if (type == ControlMessage.ERROR) {
      finalMessageReceived = true;
      connection.fail("rank " + connection.remoteRank() + " refuses: " + heads.text(message), null);
    } else if (type == ControlMessage.GOODBYE) {
      finalMessageReceived = true;
    }
  }

  private OwnedMemory inUse(long message) {
    OwnedMemory target = heads.target(message);
    if (!target.enter()) {
      throw new ProtocolViolation("the memory is not, or no longer, registered");
    }
    return target;
  }

  /** Begins to receive bodies, and to store bytes through the device, in order. */
  private int start() {
    int work = 0;
    while (started < arrived && (heads.hasBody(started) ? startBody() : startStaged())) {
      started++;
      work++;
    }
    return work;
  }

  private boolean startBody() {
    OwnedMemory target = heads.target(started);
    // A signal must not arrive before its data. Copies by the device run in their order.
    boolean waits =
        heads.type(started) == ControlMessage.UPDATE_DATA
            ? started != done
            : !(link.keepsOrder() && target.isStaged()) && heads.overlapsEarlier(done, started);
    int slot = waits ? NO_SLOT : take(false);
    if (slot == NO_SLOT) {
      return false;
    }
    OwnedMemory memory = target.isStaged() ? null : target;
    int length = (int) heads.length(started);
    if (!link.receiveBody(slot, heads.address(started), memory, bodies.address(slot), length)) {
      bodies.cancel(slot);
      return false;
    }
    slots[slot(started)] = slot;
    return true;
  }

  /** Takes a slot for the bytes of the next message to start. */
  private int take(boolean signal) {
    OwnedMemory target = inUse(started);
    int slot = NO_SLOT;
    try {
      int length = (int) heads.length(started);
      slot = bodies.take(started, target, heads.offset(started), length, signal);
    } finally {
      if (slot == NO_SLOT) {
        target.release();
      }
    }
    return slot;
  }

  /** Passes a payload or a signal to the device, if this process can't store to the memory. */
  private boolean startStaged() {
    int type = heads.type(started);
    boolean signal = type == ControlMessage.UPDATE;
    if (type > ControlMessage.UPDATE || heads.target(started).isOnHost()) {
      return true;
    }
    // The device copies in order, but bodies that arrive out of order and stores by this process
    // are
    // not ordered with its copies.
    if (started != done && (!link.keepsOrder() || signal && heads.isAnyOnHost(done, started))) {
      return false;
    }
    int slot = take(signal);
    if (slot == NO_SLOT) {
      return false;
    }
    slots[slot(started)] = slot;
    if (signal) {
      HostMemory.putLong(bodies.address(slot), heads.value(started));
    } else {
      HostMemory.copy(bodies.address(slot), heads.payload(started), heads.length(started));
    }
    bodies.received(slot);
    return true;
  }

  private int receiveBodies() {
    int work = 0;
    for (int slot = bodies.next(); slot >= 0 && link.isReceived(slot); slot = bodies.next()) {
      long message = bodies.message(slot);
      heads.checkBody(message, bodies.address(slot));
      bodies.received(slot);
      bodiesDue--;
      receivedInFull(message);
      work++;
    }
    return work;
  }

  private int finish() {
    int work = 0;
    while (done < started && finishNext()) {
      done++;
      work++;
    }
    return work;
  }

  private boolean finishNext() {
    int slot = slots[slot(done)];
    if (slot != NO_SLOT) {
      return bodies.free(slot);
    }
    switch (heads.type(done)) {
      case ControlMessage.INLINE -> {
        OwnedMemory target = inUse(done);
        HostMemory.copy(heads.start(done), heads.payload(done), heads.length(done));
        target.release();
      }
      case ControlMessage.UPDATE -> {
        OwnedMemory target = inUse(done);
        // Release: pairs with the acquire of a thread that awaits this word; it sees earlier
        // writes.
        HostMemory.putLongRelease(heads.start(done), heads.value(done));
        target.release();
      }
      case ControlMessage.FLUSH -> sender.acknowledge(heads.value(done));
      case ControlMessage.GOODBYE -> connection.peerLeaves();
      default -> {
        // It was handled when it arrived.
      }
    }
    return true;
  }

  /** Returns whether bytes arrive in that memory. */
  boolean uses(OwnedMemory target) {
    return bodies.uses(target);
  }

  /** Returns whether the device is still copying to or from staged memory. */
  boolean isCopying() {
    return bodies.isCopying();
  }

  /** Releases all memories. Called after the link is closed, when nothing is in flight. */
  void abandon() {
    bodies.abandon();
  }
}
