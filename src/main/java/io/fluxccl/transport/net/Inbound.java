package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.BodyPlace;
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

    void errorReported(String text);

    /** Called when the peer has left and all its earlier messages are done. */
    void peerLeaves();

    /** Called when the peer's final message has arrived; earlier ones may not be done. */
    void farewellArrived();
  }

  private static final int NOT_STARTED = -1;

  private final MemoryTable table;
  private final Events events;
  private final DataReceiver[] rails;
  private final int capacity;

  /** True if the bytes of long writes arrive as the bodies of messages. */
  private final boolean bodies;

  private final ControlReceiver control;
  private final int[] places;
  private final long[] starts;
  private final long[] ends;
  private final boolean[] onHost;

  // The numbers of messages arrived, of those whose bytes are in flight, and of those done.
  private long arrived;
  private long started;
  private long done;

  /** True if the header of the next message was checked before its body arrived. */
  private boolean checked;

  /** True if the body of the next message can't be received yet. */
  private boolean bodyWaits;

  Inbound(Links links, int capacity, MemoryTable table, Staging staging, Events events) {
    this.table = table;
    this.events = events;
    this.capacity = capacity;
    this.bodies = links.rails() == 0;
    this.rails = new DataReceiver[Math.max(1, links.rails())];
    try {
      for (int i = 0; i < rails.length; i++) {
        // One request of the limit is reserved for the flush that follows a receive.
        rails[i] = new DataReceiver(links.receivers[bodies ? 0 : i + 1], capacity - 1, staging);
      }
      this.control =
          new ControlReceiver(links.receivers[0], capacity, bodies ? this::placeBody : null);
    } catch (Throwable e) {
      CloseHelper.quietClose(this::abandon);
      throw e;
    }
    this.places = new int[capacity];
    this.starts = new long[capacity];
    this.ends = new long[capacity];
    this.onHost = new boolean[capacity];
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
        rails[0].received(places[slot(arrived)]);
      }
      arrived++;
      checked = false;
      work++;
    }
    return work;
  }

  /** Returns the address for a body, or NOT_YET while earlier messages must come first. */
  private long placeBody(long head, long headSize, long bodySize) {
    if (head != control.address(arrived)) {
      bodyWaits = true;
      return BodyPlace.NOT_YET;
    }
    if (!checked) {
      check(arrived, headSize, bodySize);
      checked = true;
    }
    OwnedMemory target = target(arrived);
    // Device copies run in the order of the messages; bytes from the network could overtake them.
    bodyWaits = target.isStaged() ? started < arrived : done < arrived;
    if (!bodyWaits) {
      int place = place(arrived, target, (int) bodySize, false);
      places[slot(arrived)] = place;
      bodyWaits = place == NOT_STARTED;
    }
    return bodyWaits ? BodyPlace.NOT_YET : rails[0].address(places[slot(arrived)]);
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
    if (bytes < ControlMessage.HEADER_BYTES) {
      throw new ProtocolViolation(
          "a message of " + bytes + " bytes came, or the network plugin does not tell sizes");
    }
    int type = control.type(message);
    long value = control.value(message);
    boolean hasPayload =
        type == ControlMessage.INLINE
            || type == ControlMessage.ERROR
            || type == ControlMessage.GOODBYE;
    boolean hasBody = bodies && type == ControlMessage.DATA;
    if (bodySize != (hasBody ? value : 0)) {
      throw new ProtocolViolation(
          "a message of type=" + type + ", value=" + value + " has a body of " + bodySize);
    }
    if (type < ControlMessage.INLINE
        || type > ControlMessage.GOODBYE
        || bytes - ControlMessage.HEADER_BYTES != (hasPayload ? value : 0)) {
      throw new ProtocolViolation(
          "a message of type=" + type + ", value=" + value + " has " + bytes + " bytes");
    }
    places[slot(message)] = NOT_STARTED;
    starts[slot(message)] = 0;
    ends[slot(message)] = 0;
    onHost[slot(message)] = false;
    if (type == ControlMessage.ACK) {
      events.acknowledged(value);
    } else if (type == ControlMessage.ERROR) {
      events.farewellArrived();
      events.errorReported(control.text(message, (int) value));
    } else if (type == ControlMessage.GOODBYE) {
      events.farewellArrived();
    } else if (type <= ControlMessage.UPDATE_DATA) {
      checkTarget(message, type);
    }
  }

  private void checkTarget(long message, int type) {
    long offset = control.offset(message);
    boolean signal = type >= ControlMessage.UPDATE;
    long length = signal ? Long.BYTES : control.value(message);
    OwnedMemory target = target(message);
    if (!target.contains(offset, length) || length > Integer.MAX_VALUE) {
      throw new ProtocolViolation(
          String.format(
              "a write of %s bytes at offset %s is outside the %s bytes of its memory",
              length, offset, target.size()));
    }
    int rail = control.rail(message);
    if (rail < 0 || rail >= rails.length || signal && (offset & Long.BYTES - 1) != 0) {
      throw new ProtocolViolation("a write at offset " + offset + " on rail " + rail);
    }
    boolean stored = type == ControlMessage.INLINE || type == ControlMessage.UPDATE;
    if (stored && !target.isOnHost() && !target.isStaged()) {
      throw new ProtocolViolation("bytes for a GPU's memory in a control message");
    }
    onHost[slot(message)] = target.isOnHost();
    starts[slot(message)] = target.address() + offset;
    ends[slot(message)] = target.address() + offset + length;
  }

  private OwnedMemory target(long message) {
    long id = control.memory(message);
    OwnedMemory target = table.get(id);
    if (target == null) {
      throw new ProtocolViolation(
          "memory id=0x" + Long.toHexString(id) + " is not, or no longer, registered");
    }
    return target;
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
    if (signal ? started != done : overlapsEarlier(started)) {
      return false;
    }
    OwnedMemory target = inUse(target(started));
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
    OwnedMemory target = target(started);
    if (target.isOnHost()) {
      return true;
    }
    // The device copies in order, but receives on rails and stores by this process are not ordered
    // with its copies.
    if (started != done && (!bodies || signal && isAnyOnHost(done, started))) {
      return false;
    }
    int length = (int) (ends[slot(started)] - starts[slot(started)]);
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

  private boolean isAnyOnHost(long from, long to) {
    for (long message = from; message < to; message++) {
      if (onHost[slot(message)]) {
        return true;
      }
    }
    return false;
  }

  private boolean overlapsEarlier(long message) {
    long start = starts[slot(message)];
    long end = ends[slot(message)];
    for (long earlier = done; earlier < message; earlier++) {
      if (starts[slot(earlier)] < end && start < ends[slot(earlier)]) {
        return true;
      }
    }
    return false;
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
        OwnedMemory target = inUse(target(done));
        HostMemory.copy(
            starts[slot(done)], control.payload(done), ends[slot(done)] - starts[slot(done)]);
        target.release();
      }
      case ControlMessage.UPDATE -> {
        if (places[slot(done)] != NOT_STARTED) {
          return rails[0].take(places[slot(done)]);
        }
        OwnedMemory target = inUse(target(done));
        // Release: pairs with the acquire of a thread that awaits this word; it sees earlier
        // writes.
        HostMemory.putLongRelease(starts[slot(done)], control.value(done));
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
