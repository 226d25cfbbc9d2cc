package io.fluxccl.transport.ib;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.host.HostMemory;
import java.io.IOException;
import org.agrona.concurrent.AtomicBuffer;

/**
 * What a staged connection receives: the peer's device writes slots to pinned memory, from where
 * this rank's device places them, signals behind their data; what is placed is acknowledged. One
 * thread at a time.
 */
final class StagedInbox {
  private final PinnedBuffer memory;
  private final AtomicBuffer buffer;
  private final VerbsMemory registered;
  private final DeviceStream stream;
  private final StagedMemories memories;
  private long taken;
  private long marked;

  /** The last slot that the device places. */
  private long streamed;

  private long acknowledged;

  StagedInbox(
      PinnedBuffer memory, VerbsMemory registered, DeviceStream stream, StagedMemories memories) {
    this.memory = memory;
    this.buffer = memory.buffer();
    this.registered = registered;
    this.stream = stream;
    this.memories = memories;
  }

  long address() {
    return buffer.addressOffset();
  }

  int key() {
    return registered.remoteKey();
  }

  /** How many slots are placed. Acquire: pairs with the stream's store, behind its copies. */
  private long passed() {
    return buffer.getLongAcquire(StagedSlots.PASSED);
  }

  /** Whether the device still places slots. */
  boolean isPlacing() {
    return passed() < marked;
  }

  /**
   * Places what has come; returns how many slots.
   *
   * @throws IOException if the peer writes where it may not
   */
  int take() throws IOException {
    long before = taken;
    // Acquire: the peer's device has written the slot before.
    while (taken - acknowledged < StagedSlots.COUNT
        && buffer.getLongAcquire(StagedSlots.sequence(taken)) == taken + 1
        && place(StagedSlots.index(taken))) {
      taken++;
    }
    if (taken != marked) {
      stream.writeValue(memory, StagedSlots.PASSED, taken);
      marked = taken;
    }
    return (int) (taken - before);
  }

  /** False while it has to wait for the device. */
  private boolean place(int slot) throws IOException {
    boolean isData = buffer.getLong(slot + StagedSlots.KIND) == StagedSlots.DATA;
    long id = buffer.getLong(slot + StagedSlots.MEMORY);
    long offset = buffer.getLong(slot + StagedSlots.OFFSET);
    long value = buffer.getLong(slot + StagedSlots.VALUE);
    long length = isData ? value : Long.BYTES;
    IbMemoryHandle target = memories.get(id);
    if (target == null || !target.beginUse()) {
      throw new IOException("the peer writes to memory that is closed, or never was registered");
    }
    try {
      if (length < 0
          || length > StagedSlots.PAYLOAD_LENGTH
          || offset < 0
          || offset > target.size() - length
          || !isData && (target.addressAt(offset) & Long.BYTES - 1) != 0) {
        throw new IOException(
            "the peer writes " + length + " bytes at offset " + offset + " of " + target.size());
      }
      return target.isStreamed()
          ? placeByStream(target, offset, slot, isData, value)
          : placeOnHost(target, offset, slot, isData, value);
    } finally {
      // Who closes it from here on waits for the device.
      target.endUse();
    }
  }

  private boolean placeByStream(
      IbMemoryHandle target, long offset, int slot, boolean isData, long value) {
    if (isData) {
      stream.copy(target.buffer(), offset, memory, slot + StagedSlots.PAYLOAD, (int) value);
    } else {
      stream.writeValue(target.buffer(), offset, value);
    }
    streamed = taken + 1;
    return true;
  }

  /** Not before what the device places, or a signal could come before its data. */
  private boolean placeOnHost(
      IbMemoryHandle target, long offset, int slot, boolean isData, long value) {
    if (passed() < streamed) {
      return false;
    }
    if (isData) {
      long from = buffer.addressOffset() + slot + StagedSlots.PAYLOAD;
      HostMemory.copy(target.addressAt(offset), from, value);
    } else {
      // Release: pairs with the acquire of who waits for the signal.
      HostMemory.putLongRelease(target.addressAt(offset), value);
    }
    return true;
  }

  /** Tells the peer how many slots are placed, if that is news; returns whether it was. */
  int acknowledge(StagedOutbox.Poster poster, IbEndpointCodec.Inbox peer) throws IOException {
    long passed = passed();
    if (passed == acknowledged || !poster.hasRoom(1)) {
      return 0;
    }
    poster.postWord(passed, peer.creditAddress(), peer.creditKey());
    acknowledged = passed;
    return 1;
  }

  /** Lets go of the memory, into which no peer writes any more. */
  void close() {
    try {
      registered.close();
    } finally {
      memory.close();
    }
  }
}
