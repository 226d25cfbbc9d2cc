package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;
import java.util.ArrayDeque;
import java.util.Deque;
import org.agrona.CloseHelper;

/**
 * Pinned memory of one comm, through which bytes go between the network and a device's memory that
 * the network can't reach: one slot for each message in flight. Confined to the agent.
 */
final class StagingSlots {
  /** The longest part of a write that goes through a slot. */
  static final int SLOT_BYTES = 256 << 10;

  /** How many slots a comm has at most. */
  static final int MAX_SLOTS = 8;

  /** Words in which the stream says that a slot's copy is done: a cache line each. */
  private static final int WORD_DISTANCE = 64;

  private final DeviceStream stream;
  private final PinnedBuffer memory;
  private final PinnedBuffer words;
  private final NetMemory registration;
  private final long[] sequences;

  StagingSlots(Device device, DeviceStream stream, NetComm comm, int count) {
    this.stream = stream;
    this.sequences = new long[count];
    Deque<AutoCloseable> undo = new ArrayDeque<>();
    try {
      memory = device.allocatePinned(count * SLOT_BYTES);
      undo.push(memory);
      words = device.allocatePinned(count * WORD_DISTANCE);
      undo.push(words);
      registration =
          comm.register(memory.buffer().addressOffset(), memory.size(), PointerType.HOST);
    } catch (Throwable e) {
      CloseHelper.quietCloseAll(undo);
      throw e;
    }
  }

  NetMemory registration() {
    return registration;
  }

  /** Where the network finds a slot. */
  long address(int slot) {
    return memory.buffer().addressOffset() + (long) slot * SLOT_BYTES;
  }

  /** Has the device copy its bytes to a slot. */
  void fetch(int slot, OwnedMemory source, long offset, int length) {
    stream.copy(memory, slot * SLOT_BYTES, source.buffer(), offset, length);
    mark(slot);
  }

  /** Has the device copy a slot's bytes to its memory. */
  void store(int slot, OwnedMemory target, long offset, int length) {
    stream.copy(target.buffer(), offset, memory, slot * SLOT_BYTES, length);
    mark(slot);
  }

  /** Has the device store a slot's 8 bytes at once, visible behind what it has stored before. */
  void storeSignal(int slot, OwnedMemory target, long offset) {
    stream.writeValue(target.buffer(), offset, memory.buffer().getLong(slot * SLOT_BYTES));
    mark(slot);
  }

  private void mark(int slot) {
    stream.writeValue(words, slot * WORD_DISTANCE, ++sequences[slot]);
  }

  /**
   * Whether the slot's copy is done. Acquire: pairs with the release of the stream's {@code
   * writeValue}.
   */
  boolean isDone(int slot) {
    return words.buffer().getLongAcquire(slot * WORD_DISTANCE) >= sequences[slot];
  }

  /** Whether the device still copies. */
  boolean isCopying() {
    for (int slot = 0; slot < sequences.length; slot++) {
      if (!isDone(slot)) {
        return true;
      }
    }
    return false;
  }

  /** Lets go of the slots; the device may still be at work on them. */
  void close() {
    Closing.all(memory, words);
  }
}
