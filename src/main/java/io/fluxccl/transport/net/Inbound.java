// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.BodyAddressResolver;
import io.fluxccl.netplugin.NetRecvComm;
import java.util.Arrays;
import org.agrona.CloseHelper;

/**
 * Receives the peer's control messages into a ring and executes them in order; a message that is
 * done frees its slot. Receives of long writes are posted ahead of their turn, unless one would
 * write a range that an earlier message has still to write. Confined to the agent; allocates
 * nothing in steady state.
 */
final class Inbound {
  /** Receives the peer's messages that are neither writes nor signals. */
  interface Events {
    void flushRequested(long ticket);

    void acknowledged(long ticket);

    /** Called with the number of messages that the peer has received in full. */
    void confirmed(long count);

    /** Called when the peer needs a confirmation of what it has sent. */
    void confirmationAsked();

    void errorReported(String text);

    /** Called when the peer has left and all its earlier messages are done. */
    void peerLeaves();

    /** Called when the peer's final message has arrived; earlier ones may not be done. */
    void finalMessageReceived();
  }

  private static final int NOT_STARTED = -1;

  private final Events events;
  private final DataReceiver[] rails;
  private final int capacity;

  /** True if the bytes of long writes arrive as the bodies of messages. */
  private final boolean bodies;

  private final ControlReceiver control;
  private final int[] places;
  private final WriteRanges ranges;
  private final MessageCheck check;

  // The numbers of messages arrived, of those whose bytes are in flight, and of those done.
  private long arrived;
  private long started;
  private long done;

  /** The number of numbered messages that have arrived. */
  private long received;

  /** True if the header of the next message was checked before its body arrived. */
  private boolean checked;

  /** True if the body of the next message can't be received yet. */
  private boolean bodyWaits;

  Inbound(
      Links links,
      int capacity,
      boolean checksums,
      MemoryTable table,
      Staging staging,
      Events events) {
    this.events = events;
    this.capacity = capacity;
    this.bodies = links.rails() == 0;
    this.rails = new DataReceiver[Math.max(1, links.rails())];
    try {
      for (int i = 0; i < rails.length; i++) {
        // One request of the limit is reserved for the flush that follows a receive.
        rails[i] = new DataReceiver(bodies ? null : links.receivers[i + 1], capacity - 1, staging);
      }
      this.control =
          new ControlReceiver(
              links.receivers[0], capacity, bodies ? this::placeBody : null, checksums);
    } catch (Throwable e) {
      CloseHelper.quietClose(this::abandon);
      throw e;
    }
    this.places = new int[capacity];
    this.ranges = new WriteRanges(capacity);
    this.check = new MessageCheck(control, ranges, table, links.rails());
  }

  /** Returns the number of messages that have arrived, with those that only confirm. */
  long arrived() {
    return arrived;
  }

  /** Returns the number of numbered messages that have arrived in full. */
  long received() {
    return received;
  }

  /** Returns whether the ends agreed on checksums. */
  boolean hasChecksums() {
    return control.hasChecksums();
  }

  /**
   * Returns whether messages are read as they arrive; false while earlier ones must be done first.
   */
  boolean isReading() {
    return !bodyWaits && arrived - done < capacity;
  }

  /** Drops the message that is arriving on a lost link; the peer sends it again. */
  void interrupt() {
    if (checked && places[slot(arrived)] != NOT_STARTED) {
      rails[0].cancel(places[slot(arrived)]);
    }
    checked = false;
    bodyWaits = false;
  }

  /**
   * Continues on another link, on which the peer resends the messages that have not arrived in
   * full.
   */
  void resume(NetRecvComm link) {
    control.resume(link, arrived);
  }

  /** Advances all messages, and returns the work count. */
  int progress() {
    int work = control.post(done) + arrive();
    int moved = 1;
    // A write over an earlier one, or its body, starts only when that is done: repeat on progress.
    for (int turn = 0; moved > 0 && turn < capacity; turn++) {
      moved = start();
      for (DataReceiver rail : rails) {
        moved += rail.progress();
      }
      moved += finish();
      if (bodyWaits && moved > 0) {
        moved += control.post(done) + arrive();
      }
      work += moved;
    }
    return work;
  }

  /** Receives messages without executing them, and returns the work count. */
  int progressArrivals() {
    return control.post(done) + arrive();
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int arrive() {
    int work = 0;
    while (control.hasArrived(arrived)) {
      if (!checked) {
        check(arrived, control.bytes(arrived), 0);
      } else {
        int place = places[slot(arrived)];
        control.checkBody(arrived, rails[0].address(place));
        rails[0].received(place);
      }
      if (control.type(arrived) != ControlMessage.CONFIRM) {
        received++;
      }
      if ((control.flags(arrived) & ControlMessage.CONFIRM_AT_ONCE) != 0) {
        events.confirmationAsked();
      }
      arrived++;
      checked = false;
      work++;
    }
    return work;
  }

  /** Returns the address for a body, or NOT_YET while earlier messages must be done first. */
  private long placeBody(long head, long headSize, long bodySize) {
    if (head != control.address(arrived)) {
      bodyWaits = true;
      return BodyAddressResolver.NOT_YET;
    }
    if (!checked) {
      check(arrived, headSize, bodySize);
      checked = true;
    }
    OwnedMemory target = check.target(arrived);
    // Device copies run in the order of the messages; bytes from the network could overtake them.
    bodyWaits = target.isStaged() ? started < arrived : done < arrived;
    if (!bodyWaits) {
      int place = place(arrived, target, (int) bodySize, false);
      places[slot(arrived)] = place;
      bodyWaits = place == NOT_STARTED;
    }
    return bodyWaits ? BodyAddressResolver.NOT_YET : rails[0].address(places[slot(arrived)]);
  }

  private int place(long message, OwnedMemory target, int length, boolean signal) {
    long offset = control.offset(message);
    int place = NOT_STARTED;
    inUse(target);
    try {
      place = rails[0].place(target, offset, length, signal);
    } finally {
      if (place == NOT_STARTED) {
        target.release();
      }
    }
    return place;
  }

  private void check(long message, long bytes, long bodySize) {
    check.check(message, received, bytes, bodySize);
    places[slot(message)] = NOT_STARTED;
    if (bodies) {
      events.confirmed(control.received(message));
    }
    int type = control.type(message);
    if (type == ControlMessage.ACK) {
      events.acknowledged(control.value(message));
    } else if (type == ControlMessage.ERROR) {
      events.finalMessageReceived();
      events.errorReported(control.text(message, (int) control.value(message)));
    } else if (type == ControlMessage.GOODBYE) {
      events.finalMessageReceived();
    }
  }

  private static OwnedMemory inUse(OwnedMemory target) {
    if (!target.enter()) {
      throw new ProtocolViolation("the memory is not, or no longer, registered");
    }
    return target;
  }

  /** Posts receives for announced writes, in order. */
  private int start() {
    int work = 0;
    while (started < arrived && startNext()) {
      started++;
      work++;
    }
    return work;
  }

  private boolean startNext() {
    int type = control.type(started);
    if (type == ControlMessage.INLINE || type == ControlMessage.UPDATE) {
      return startStaged(type == ControlMessage.UPDATE);
    }
    boolean signal = type == ControlMessage.UPDATE_DATA;
    if (type != ControlMessage.DATA && !signal || places[slot(started)] != NOT_STARTED) {
      return true;
    }
    // A signal must not arrive before its data.
    if (signal ? started != done : ranges.overlapsEarlier(done, started)) {
      return false;
    }
    OwnedMemory target = inUse(check.target(started));
    int place = NOT_STARTED;
    try {
      int rail = control.rail(started);
      int length = (int) control.value(started);
      long offset = control.offset(started);
      place = rails[rail].post(target, offset, length);
    } finally {
      if (place == NOT_STARTED) {
        target.release();
      }
    }
    places[slot(started)] = place;
    return place != NOT_STARTED;
  }

  /** Passes a message's bytes to the device, whose memory this process can't store to. */
  private boolean startStaged(boolean signal) {
    OwnedMemory target = check.target(started);
    if (target.isOnHost()) {
      return true;
    }
    // The device copies in order, but receives on rails and stores by this process are not ordered
    // with its copies.
    if (started != done && (!bodies || signal && ranges.isAnyOnHost(done, started))) {
      return false;
    }
    int length = (int) ranges.length(started);
    int place = place(started, target, length, signal);
    if (place == NOT_STARTED) {
      return false;
    }
    places[slot(started)] = place;
    if (signal) {
      HostMemory.putLong(rails[0].address(place), control.value(started));
    } else {
      HostMemory.copy(rails[0].address(place), control.payload(started), length);
    }
    rails[0].received(place);
    return true;
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
    switch (control.type(done)) {
      case ControlMessage.INLINE -> {
        if (places[slot(done)] != NOT_STARTED) {
          return rails[0].take(places[slot(done)]);
        }
        OwnedMemory target = inUse(check.target(done));
        HostMemory.copy(ranges.start(done), control.payload(done), ranges.length(done));
        target.release();
      }
      case ControlMessage.UPDATE -> {
        if (places[slot(done)] != NOT_STARTED) {
          return rails[0].take(places[slot(done)]);
        }
        OwnedMemory target = inUse(check.target(done));
        // Release: pairs with the acquire of a thread that awaits this word; it sees earlier
        // writes.
        HostMemory.putLongRelease(ranges.start(done), control.value(done));
        target.release();
      }
      case ControlMessage.DATA, ControlMessage.UPDATE_DATA -> {
        int rail = control.rail(done);
        return rails[rail].take(places[slot(done)]);
      }
      case ControlMessage.FLUSH -> events.flushRequested(control.value(done));
      case ControlMessage.GOODBYE -> events.peerLeaves();
      default -> {
        // It was handled when it arrived.
      }
    }
    return true;
  }

  /** Returns whether a receive into that memory is in flight. */
  boolean uses(OwnedMemory target) {
    for (DataReceiver rail : rails) {
      if (rail.uses(target)) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether the device is still copying to or from staged memory. */
  boolean isCopying() {
    for (DataReceiver rail : rails) {
      if (rail.isCopying()) {
        return true;
      }
    }
    return false;
  }

  void forget(OwnedMemory target) {
    Closing.all(
        Arrays.stream(rails).<AutoCloseable>map(rail -> () -> rail.forget(target)).toList());
  }

  /** Releases all memories. Called after all comms are closed, when nothing is in flight. */
  void abandon() {
    Closing.all(
        Arrays.stream(rails)
            .filter(rail -> rail != null)
            .<AutoCloseable>map(rail -> rail::abandon)
            .toList());
  }
}
