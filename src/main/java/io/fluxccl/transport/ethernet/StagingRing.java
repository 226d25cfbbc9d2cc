package io.fluxccl.transport.ethernet;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.PinnedBuffer;
import org.agrona.DirectBuffer;

/**
 * Pinned memory used as a ring, and the word in which a stream says how far it has come. Positions
 * count bytes from the ring's beginning and never go back. What is claimed is in use until it is
 * released. Confined to the event loop, but for {@link #passed()}.
 */
final class StagingRing {
  /** The word lies two cache lines behind the ring: the device writes it while sockets read. */
  private static final int WORD_DISTANCE = 128;

  private final PinnedBuffer memory;
  private final int length;
  private final long address;
  private long claimed;
  private long released;
  private long marked;

  /**
   * @param length bytes, a power of two
   */
  StagingRing(Device device, int length) {
    this.memory = device.allocatePinned(length + 2 * WORD_DISTANCE);
    this.length = length;
    this.address = memory.buffer().addressOffset();
  }

  int length() {
    return length;
  }

  /** The end of what is claimed. */
  long claimed() {
    return claimed;
  }

  void claim(int bytes) {
    claimed += bytes;
  }

  /** The beginning of what is in use. */
  long released() {
    return released;
  }

  void releaseTo(long position) {
    released = Math.max(released, position);
  }

  /** How many bytes can be claimed. */
  int room() {
    return (int) (length - (claimed - released));
  }

  int index(long position) {
    return (int) position & (length - 1);
  }

  /** How many bytes from a position on lie in one piece. */
  int inOnePiece(long position) {
    return length - index(position);
  }

  /** Where sockets find that position. */
  long address(long position) {
    return address + index(position);
  }

  PinnedBuffer memory() {
    return memory;
  }

  /** Claims room for bytes, which there must be, and copies them there. */
  void put(DirectBuffer source, int index, int bytes) {
    int first = Math.min(bytes, inOnePiece(claimed));
    memory.buffer().putBytes(index(claimed), source, index, first);
    if (first < bytes) {
      memory.buffer().putBytes(0, source, index + first, bytes - first);
    }
    claimed += bytes;
  }

  /** Has the stream say when all that is claimed and enqueued by now is done. */
  void mark(DeviceStream stream) {
    stream.writeValue(memory, length + WORD_DISTANCE, claimed);
    marked = claimed;
  }

  /** The position of the last {@link #mark}. */
  long marked() {
    return marked;
  }

  /**
   * How far the stream has come. Acquire: pairs with the release of the stream's {@code
   * writeValue}, so that what it copied before is there. Called from any thread.
   */
  long passed() {
    return memory.buffer().getLongAcquire(length + WORD_DISTANCE);
  }

  /** Lets go of the memory, once no socket uses it; the device may still be at work on it. */
  void close() {
    memory.close();
  }
}
