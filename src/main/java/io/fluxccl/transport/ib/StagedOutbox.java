package io.fluxccl.transport.ib;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.PostQueue;
import java.io.IOException;
import org.agrona.concurrent.AtomicBuffer;

/**
 * What a staged connection sends: each post takes a slot, or several; the device copies its payload
 * there; once it has, the slot is written to the peer's inbox. The peer says how many slots it has
 * placed, which gives them back and is what flushes wait for. One thread at a time.
 */
final class StagedOutbox {
  private static final int FLUSHES = 64;

  /** What puts requests into the send queue. */
  interface Poster {
    /** Whether there is room for so many requests. */
    boolean hasRoom(int requests);

    /** Posts a write of this rank's memory; completes only where it fails. */
    void postBytes(long address, int length, int localKey, long remoteAddress, int remoteKey)
        throws IOException;

    /** Posts a write of one word, behind everything before it. */
    void postWord(long value, long remoteAddress, int remoteKey) throws IOException;
  }

  private final PinnedBuffer memory;
  private final AtomicBuffer buffer;
  private final VerbsMemory registered;
  private final DeviceStream stream;
  private final int[] lengths = new int[StagedSlots.COUNT];

  /** For each slot, how far the stream must have come before it may be sent. */
  private final long[] needs = new long[StagedSlots.COUNT];

  private final long[] flushPositions = new long[FLUSHES];
  private final long[] flushTickets = new long[FLUSHES];
  private int firstFlush;
  private int flushCount;
  private long filled;
  private long launched;
  private long copies;
  private long doneTicket;

  /** Bytes of the oldest write that are in slots. */
  private long progress;

  StagedOutbox(PinnedBuffer memory, VerbsMemory registered, DeviceStream stream) {
    this.memory = memory;
    this.buffer = memory.buffer();
    this.registered = registered;
    this.stream = stream;
  }

  /** How many slots the peer has placed. Acquire: pairs with the peer's device, which wrote it. */
  private long credits() {
    // What a peer writes is not trusted.
    return Math.min(launched, Math.max(0, buffer.getLongAcquire(StagedSlots.CREDIT)));
  }

  /** How many copies of this end are done. Acquire: pairs with the stream's store. */
  private long passed() {
    return buffer.getLongAcquire(StagedSlots.PASSED);
  }

  /** Whether the device still copies to slots. */
  boolean isCopying() {
    return passed() < copies;
  }

  /** Whether the peer has not placed everything. */
  boolean isPending() {
    return filled != credits() || flushCount > 0;
  }

  /** The highest ticket that is done. */
  long doneTicket() {
    return doneTicket;
  }

  /** Takes as many posts as there are slots; returns how many it has dealt with. */
  int fill(PostQueue<IbMemoryHandle> posts) {
    int done = 0;
    while (true) {
      int type = posts.type();
      if (type == PostQueue.FLUSH) {
        if (!addFlush(posts.targetOffset())) {
          return done;
        }
        posts.pop();
      } else if (type == PostQueue.NONE || filled - credits() == StagedSlots.COUNT) {
        return done;
      } else if (type == PostQueue.WRITE) {
        fillWrite(posts);
      } else {
        begin(StagedSlots.UPDATE, posts.target(), posts.targetOffset(), posts.sourceOffset(), 0);
        IbMemoryHandle target = posts.target();
        posts.pop();
        target.endUse();
      }
      done++;
    }
  }

  private void fillWrite(PostQueue<IbMemoryHandle> posts) {
    IbMemoryHandle target = posts.target();
    IbMemoryHandle source = posts.source();
    long from = posts.sourceOffset() + progress;
    int length = (int) Math.min(posts.length() - progress, StagedSlots.PAYLOAD_LENGTH);
    int payload = StagedSlots.index(filled) + StagedSlots.PAYLOAD;
    if (source.isStreamed()) {
      stream.copy(memory, payload, source.buffer(), from, length);
      stream.writeValue(memory, StagedSlots.PASSED, ++copies);
    } else {
      HostMemory.copy(buffer.addressOffset() + payload, source.addressAt(from), length);
    }
    begin(StagedSlots.DATA, target, posts.targetOffset() + progress, length, length);
    progress += length;
    if (progress == posts.length()) {
      progress = 0;
      posts.pop();
      // Who closes the source meanwhile waits for the device.
      source.endUse();
      target.endUse();
    }
  }

  private void begin(long kind, IbMemoryHandle target, long offset, long value, int length) {
    int at = StagedSlots.index(filled);
    buffer.putLong(at + StagedSlots.KIND, kind);
    buffer.putLong(at + StagedSlots.MEMORY, target.id());
    buffer.putLong(at + StagedSlots.OFFSET, offset);
    buffer.putLong(at + StagedSlots.VALUE, value);
    int slot = (int) filled & StagedSlots.COUNT - 1;
    lengths[slot] = length;
    needs[slot] = copies;
    filled++;
  }

  private boolean addFlush(long ticket) {
    if (flushCount == FLUSHES) {
      return false;
    }
    int place = (firstFlush + flushCount++) % FLUSHES;
    flushPositions[place] = filled;
    flushTickets[place] = ticket;
    return true;
  }

  /** Sends the slots that are complete; returns how many. */
  int launch(Poster poster, IbEndpointCodec.Inbox peer) throws IOException {
    int sent = 0;
    long passed = passed();
    while (launched < filled && poster.hasRoom(2)) {
      int slot = (int) launched & StagedSlots.COUNT - 1;
      if (passed < needs[slot]) {
        break;
      }
      int at = StagedSlots.index(launched);
      poster.postBytes(
          buffer.addressOffset() + at,
          StagedSlots.PAYLOAD + lengths[slot],
          registered.localKey(),
          peer.address() + at,
          peer.key());
      poster.postWord(launched + 1, peer.address() + StagedSlots.sequence(launched), peer.key());
      launched++;
      sent++;
    }
    return sent + finishFlushes();
  }

  private int finishFlushes() {
    int done = 0;
    long credits = credits();
    while (flushCount > 0 && flushPositions[firstFlush] <= credits) {
      doneTicket = flushTickets[firstFlush];
      firstFlush = (firstFlush + 1) % FLUSHES;
      flushCount--;
      done++;
    }
    return done;
  }

  /** Where the peer says how many slots it has placed. */
  long creditAddress() {
    return buffer.addressOffset() + StagedSlots.CREDIT;
  }

  int key() {
    return registered.remoteKey();
  }

  /** Lets go of the memory; the RDMA device has nothing to do with it any more. */
  void close() {
    try {
      registered.close();
    } finally {
      memory.close();
    }
  }
}
