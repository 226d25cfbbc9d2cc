package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
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
  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetMemory registration;

  private final NetRequest[] requests;
  private final int[] places;
  private final long[] starts;
  private final long[] ends;

  // Messages whose receive was ever posted; that arrived; whose bytes are on their way; done.
  private long posted;
  private long arrived;
  private long started;
  private long done;

  Inbound(Links links, int capacity, MemoryTable table, Staging staging, Events events) {
    this.comm = links.receivers[0];
    this.table = table;
    this.events = events;
    this.capacity = capacity;
    this.rails = new DataReceiver[links.rails()];
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    try {
      for (int i = 0; i < rails.length; i++) {
        // One request less than there may be, for the flush behind a receive.
        rails[i] = new DataReceiver(links.receivers[i + 1], capacity - 1, staging);
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
  }

  /** Goes on with everything; returns how much was done. */
  int progress() {
    int work = post() + arrive();
    int moved = 1;
    // A write over an earlier one starts only when that is done: go on while there is such a one.
    for (int turn = 0; moved > 0 && turn < capacity; turn++) {
      moved = start();
      for (DataReceiver rail : rails) {
        moved += rail.progress();
      }
      moved += finish();
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

  private int type(long message) {
    return buffer.getInt(index(message) + ControlMessage.TYPE);
  }

  private long field(long message, int field) {
    return buffer.getLong(index(message) + field);
  }

  private int post() {
    int work = 0;
    while (posted - done < capacity) {
      NetRequest request =
          comm.irecv(
              buffer.addressOffset() + index(posted), ControlMessage.MAX_BYTES, 0, registration);
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
      long message = arrived++;
      check(message, requests[slot(message)].size(0));
      work++;
    }
    return work;
  }

  private void check(long message, long bytes) {
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
    if (type < ControlMessage.INLINE
        || type > ControlMessage.GOODBYE
        || bytes - ControlMessage.HEADER_BYTES != (hasPayload ? value : 0)) {
      throw new ProtocolViolation(
          "a message of type=" + type + ", value=" + value + " has " + bytes + " bytes");
    }
    places[slot(message)] = NOT_STARTED;
    starts[slot(message)] = 0;
    ends[slot(message)] = 0;
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
    if (stored && !target.isOnHost()) {
      throw new ProtocolViolation("bytes for a GPU's memory in a control message");
    }
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
    boolean signal = type == ControlMessage.UPDATE_DATA;
    if (type != ControlMessage.DATA && !signal) {
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
      place = rails[rail].post(target, offset, length, signal);
    } finally {
      if (place == NOT_STARTED) {
        target.endUse();
      }
    }
    places[slot(started)] = place;
    return place != NOT_STARTED;
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
        OwnedMemory target = inUse(target(done));
        HostMemory.copy(
            starts[slot(done)],
            buffer.addressOffset() + index(done) + ControlMessage.HEADER_BYTES,
            ends[slot(done)] - starts[slot(done)]);
        target.endUse();
      }
      case ControlMessage.UPDATE -> {
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
