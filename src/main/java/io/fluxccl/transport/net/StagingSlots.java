// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import org.agrona.CloseHelper;

/**
 * The pinned memory of one link, which stages bytes between the network and device memory that the
 * network can't access. Each message in flight has one slot. Confined to the agent.
 */
final class StagingSlots {
  /** The length of a slot in bytes, which limits the parts of a staged write. */
  static final int SLOT_BYTES = 256 << 10;

  /** The maximum number of slots of a link. */
  static final int MAX_SLOTS = 8;

  /**
   * The distance in bytes, a cache line, between the words that the stream stores when a slot's
   * copy is done.
   */
  private static final int WORD_DISTANCE = 64;

  private final DeviceStream stream;
  private final PinnedBuffer memory;
  private final PinnedBuffer words;
  private final long[] sequences;

  /**
   * Allocates the slots.
   *
   * @param link the link that accesses them
   * @param sends whether the link sends from them, or else receives into them
   */
  StagingSlots(Device device, DeviceStream stream, Link link, int count, boolean sends) {
    this.stream = stream;
    this.sequences = new long[count];
    Deque<AutoCloseable> undo = new ArrayDeque<>();
    try {
      memory = device.allocatePinned(count * SLOT_BYTES);
      undo.push(memory);
      words = device.allocatePinned(count * WORD_DISTANCE);
      undo.push(words);
      link.register(memory.buffer().addressOffset(), memory.size(), sends);
    } catch (Throwable e) {
      CloseHelper.quietCloseAll(undo);
      throw e;
    }
  }

  /** Returns the address of a slot, for the network. */
  long address(int slot) {
    return memory.buffer().addressOffset() + (long) slot * SLOT_BYTES;
  }

  /** Enqueues a copy of the device's bytes to a slot. */
  void fetch(int slot, OwnedMemory source, long offset, int length) {
    stream.copy(memory, slot * SLOT_BYTES, source.buffer(), offset, length);
    mark(slot);
  }

  /** Enqueues a copy of a slot's bytes to the device's memory. */
  void store(int slot, OwnedMemory target, long offset, int length) {
    stream.copy(target.buffer(), offset, memory, slot * SLOT_BYTES, length);
    mark(slot);
  }

  /**
   * Enqueues a store of a slot's 8 bytes as one word, which becomes visible after all earlier
   * stores of the stream.
   */
  void storeSignal(int slot, OwnedMemory target, long offset) {
    stream.writeValue(target.buffer(), offset, memory.buffer().getLong(slot * SLOT_BYTES));
    mark(slot);
  }

  private void mark(int slot) {
    stream.writeValue(words, slot * WORD_DISTANCE, ++sequences[slot]);
  }

  /**
   * Returns whether the slot's copy is done. Acquire: pairs with the release of the stream's {@code
   * writeValue}.
   */
  boolean isDone(int slot) {
    return words.buffer().getLongAcquire(slot * WORD_DISTANCE) >= sequences[slot];
  }

  /** Returns whether the device is still copying. */
  boolean isCopying() {
    for (int slot = 0; slot < sequences.length; slot++) {
      if (!isDone(slot)) {
        return true;
      }
    }
    return false;
  }

  /** Closes the slots; the device may still be using them. */
  void close() {
    Closing.all(memory, words);
  }
}
