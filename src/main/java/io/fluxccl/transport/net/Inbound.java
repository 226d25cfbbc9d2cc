package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.BodyPlace;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.agrona.BufferUtil;
import org.agrona.CloseHelper;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Takes the peer's control messages, from a ring of posted receives, and does what they say in
 * order: a message's place is free again when it is done. The receives of long writes are posted
 * ahead of that, except where one would write what an earlier message still has to. Confined to the
 * agent; allocates nothing in steady state.
 */
final class Inbound {
  /** What comes from the peer and is not a write or a signal. */
  interface Events {
    void flushRequested(long ticket);

    void acknowledged(long ticket);

    void errorReported(String text);

    /** All that the peer had to say before that is done. */
    void peerLeaves();

    /** The peer's last message has come; others before it may not be done. */
    void farewellArrived();
  }

  private static final int NOT_STARTED = -1;

  private final NetRecvComm comm;
  private final MemoryTable table;
  private final Events events;
  private final DataReceiver[] rails;
  private final int capacity;

  /** Chooses where the bodies of messages go, or null where messages have no bodies. */
  private final BodyPlace bodies;

  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetMemory registration;

  private final NetRequest[] requests;
  private final int[] places;
  private final long[] starts;
  private final long[] ends;
  private final boolean[] onHost;

  // Messages whose receive was ever posted; that arrived; whose bytes are on their way; done.
  private long posted;
  private long arrived;
  private long started;
  private long done;

  /** Whether the header of the message that arrives next was checked, ahead of its body. */
  private boolean checked;

  /** Whether there was no place for the body of the message that arrives next. */
  private boolean bodyWaits;

  Inbound(Links links, int capacity, MemoryTable table, Staging staging, Events events) {
    this.comm = links.receivers[0];
    this.table = table;
    this.events = events;
    this.capacity = capacity;
    this.bodies = links.rails() == 0 ? this::placeBody : null;
    this.rails = new DataReceiver[Math.max(1, links.rails())];
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    try {
      for (int i = 0; i < rails.length; i++) {
        // One request less than there may be, for the flush behind a receive.
        rails[i] =
            new DataReceiver(links.receivers[bodies == null ? i + 1 : 0], capacity - 1, staging);
      }
      this.registration =
          comm.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
    } catch (Throwable e) {
      CloseHelper.quietClose(this::abandon);
      throw e;
    }
    this.requests = new NetRequest[capacity];
    this.places = new int[capacity];
    this.starts = new long[capacity];
    this.ends = new long[capacity];
    this.onHost = new boolean[capacity];
  }

  /** Goes on with everything; returns how much was done. */
  int progress() {
    int work = post() + arrive();
    int moved = 1;
    // A write over an earlier one, or its body, starts only when that is done: go on while one is.
    for (int turn = 0; moved > 0 && turn < capacity; turn++) {
      moved = start();
      for (DataReceiver rail : rails) {
        moved += rail.progress();
      }
      moved += finish();
      if (bodyWaits && moved > 0) {
        moved += post() + arrive();
      }
      work += moved;
    }
    return work;
  }

  /** Takes messages, but does not do what they say; returns how many. */
  int progressArrivals() {
    return post() + arrive();
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int index(long message) {
    return slot(message) * ControlMessage.MAX_BYTES;
  }

  /** The address of what is behind a message's header. */
  private long payload(long message) {
    return buffer.addressOffset() + index(message) + ControlMessage.HEADER_BYTES;
  }

  private int type(long message) {
    return buffer.getInt(index(message) + ControlMessage.TYPE);
  }

  private long field(long message, int field) {
    return buffer.getLong(index(message) + field);
  }

  private int post() {
    int work = 0;
    while (posted - done < capacity) {
      long address = buffer.addressOffset() + index(posted);
      NetRequest request =
          bodies == null
              ? comm.irecv(address, ControlMessage.MAX_BYTES, 0, registration)
              : comm.irecv(address, ControlMessage.MAX_BYTES, registration, bodies);
      if (request == null) {
        break;
      }
      requests[slot(posted)] = request;
      posted++;
      work++;
    }
    return work;
  }

  private int arrive() {
    int work = 0;
    while (arrived < posted && requests[slot(arrived)].test()) {
      if (!checked) {
        check(arrived, requests[slot(arrived)].size(0), 0);
      } else {
        rails[0].received(places[slot(arrived)]);
      }
      arrived++;
      checked = false;
      work++;
    }
    return work;
  }

  /** Chooses where a body goes: straight to its memory when all before it is in place there. */
  private long placeBody(long head, long headSize, long bodySize) {
    if (head != buffer.addressOffset() + index(arrived)) {
      bodyWaits = true;
      return BodyPlace.NOT_YET;
    }
    if (!checked) {
      check(arrived, headSize, bodySize);
      checked = true;
    }
    OwnedMemory target = target(arrived);
    // A device copies in the order of the messages; the network's bytes could overtake them.
    bodyWaits = target.isStaged() ? started < arrived : done < arrived;
    if (!bodyWaits) {
      int place = place(arrived, target, (int) bodySize, false);
      places[slot(arrived)] = place;
      bodyWaits = place == NOT_STARTED;
    }
    return bodyWaits ? BodyPlace.NOT_YET : rails[0].address(places[slot(arrived)]);
  }

  private int place(long message, OwnedMemory target, int length, boolean signal) {
    long offset = field(message, ControlMessage.OFFSET);
    int place = NOT_STARTED;
    inUse(target);
    try {
      place = rails[0].place(target, offset, length, signal);
    } finally {
      if (place == NOT_STARTED) {
        target.endUse();
      }
    }
    return place;
  }

  private void check(long message, long bytes, long bodySize) {
    if (bytes < ControlMessage.HEADER_BYTES) {
      throw new ProtocolViolation(
          "a message of " + bytes + " bytes came, or the network plugin does not tell sizes");
    }
    int type = type(message);
    long value = field(message, ControlMessage.VALUE);
    boolean hasPayload =
        type == ControlMessage.INLINE
            || type == ControlMessage.ERROR
            || type == ControlMessage.GOODBYE;
    boolean hasBody = bodies != null && type == ControlMessage.DATA;
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
      events.errorReported(text(message, (int) value));
    } else if (type == ControlMessage.GOODBYE) {
      events.farewellArrived();
    } else if (type <= ControlMessage.UPDATE_DATA) {
      checkTarget(message, type);
    }
  }

  private String text(long message, int length) {
    byte[] bytes = new byte[length];
    buffer.getBytes(index(message) + ControlMessage.HEADER_BYTES, bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  private void checkTarget(long message, int type) {
    long offset = field(message, ControlMessage.OFFSET);
    boolean signal = type >= ControlMessage.UPDATE;
    long length = signal ? Long.BYTES : field(message, ControlMessage.VALUE);
    OwnedMemory target = target(message);
    if (!target.contains(offset, length) || length > Integer.MAX_VALUE) {
      throw new ProtocolViolation(
          String.format(
              "a write of %s bytes at offset %s is outside the %s bytes of its memory",
              length, offset, target.size()));
    }
    int rail = buffer.getInt(index(message) + ControlMessage.RAIL);
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
    long id = field(message, ControlMessage.MEMORY);
    OwnedMemory target = table.get(id);
    if (target == null) {
      throw new ProtocolViolation(
          "memory id=0x" + Long.toHexString(id) + " is not, or no longer, registered");
    }
    return target;
  }

  private static OwnedMemory inUse(OwnedMemory target) {
    if (!target.beginUse()) {
      throw new ProtocolViolation("the memory is not, or no longer, registered");
    }
    return target;
  }

  /** Posts receives for what was announced, in order. */
  private int start() {
    int work = 0;
    while (started < arrived && startNext()) {
      started++;
      work++;
    }
    return work;
  }

  private boolean startNext() {
    int type = type(started);
    if (type == ControlMessage.INLINE || type == ControlMessage.UPDATE) {
      return startStaged(type == ControlMessage.UPDATE);
    }
    boolean signal = type == ControlMessage.UPDATE_DATA;
    if (type != ControlMessage.DATA && !signal || places[slot(started)] != NOT_STARTED) {
      return true;
    }
    // A signal must not come before its data.
    if (signal ? started != done : overlapsEarlier(started)) {
      return false;
    }
    OwnedMemory target = inUse(target(started));
    int place = NOT_STARTED;
    try {
      int rail = buffer.getInt(index(started) + ControlMessage.RAIL);
      int length = (int) field(started, ControlMessage.VALUE);
      long offset = field(started, ControlMessage.OFFSET);
      place = rails[rail].post(target, offset, length);
    } finally {
      if (place == NOT_STARTED) {
        target.endUse();
      }
    }
    places[slot(started)] = place;
    return place != NOT_STARTED;
  }

  /** Hands bytes of a message to the device whose memory this process can't store to. */
  private boolean startStaged(boolean signal) {
    OwnedMemory target = target(started);
    if (target.isOnHost()) {
      return true;
    }
    // The device works in order, but what is on its way by a rail, or stored by this process, is
    // not in the device's order.
    if (started != done && (bodies == null || signal && isAnyOnHost(done, started))) {
      return false;
    }
    int length = (int) (ends[slot(started)] - starts[slot(started)]);
    int place = place(started, target, length, signal);
    if (place == NOT_STARTED) {
      return false;
    }
    places[slot(started)] = place;
    if (signal) {
      HostMemory.putLong(rails[0].address(place), field(started, ControlMessage.VALUE));
    } else {
      HostMemory.copy(rails[0].address(place), payload(started), length);
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
    switch (type(done)) {
      case ControlMessage.INLINE -> {
        if (places[slot(done)] != NOT_STARTED) {
          return rails[0].take(places[slot(done)]);
        }
        OwnedMemory target = inUse(target(done));
        HostMemory.copy(starts[slot(done)], payload(done), ends[slot(done)] - starts[slot(done)]);
        target.endUse();
      }
      case ControlMessage.UPDATE -> {
        if (places[slot(done)] != NOT_STARTED) {
          return rails[0].take(places[slot(done)]);
        }
        OwnedMemory target = inUse(target(done));
        // Release: pairs with the acquire of who waits for it, who then sees what came before.
        HostMemory.putLongRelease(starts[slot(done)], field(done, ControlMessage.VALUE));
        target.endUse();
      }
      case ControlMessage.DATA, ControlMessage.UPDATE_DATA -> {
        int rail = buffer.getInt(index(done) + ControlMessage.RAIL);
        return rails[rail].take(places[slot(done)]);
      }
      case ControlMessage.FLUSH -> events.flushRequested(field(done, ControlMessage.VALUE));
      case ControlMessage.GOODBYE -> events.peerLeaves();
      default -> {
        // Was taken when it arrived.
      }
    }
    return true;
  }

  /** Whether something that goes to that memory is on its way. */
  boolean uses(OwnedMemory target) {
    for (DataReceiver rail : rails) {
      if (rail.uses(target)) {
        return true;
      }
    }
    return false;
  }

  /** Whether the device still copies to or from memory that the network can't reach. */
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

  /** All comms are closed: nothing is in flight any more. */
  void abandon() {
    Closing.all(
        Arrays.stream(rails)
            .filter(rail -> rail != null)
            .<AutoCloseable>map(rail -> rail::abandon)
            .toList());
  }
}
