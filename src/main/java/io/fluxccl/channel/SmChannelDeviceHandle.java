// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.SmChannelDescriptor.PACKETS_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.PACKETS_SIZE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SEMAPHORE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SOURCE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.SOURCE_SIZE_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.TARGET_OFFSET;
import static io.fluxccl.channel.SmChannelDescriptor.TARGET_SIZE_OFFSET;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.semaphore.SemaphoreDeviceHandle;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * An SmChannel for kernels of the host device: a flyweight over the bytes of {@link
 * SmChannelDescriptor}. No method allocates. Offsets and sizes are bytes. A range outside its
 * memory causes InvalidUsage.
 *
 * <p>{@code numThreads} threads together call {@code put}, {@code get} and the packet methods, each
 * with its own {@code threadId}; each does its share. One thread calls {@code signal}, {@code
 * await} and {@code poll}, after a {@code syncThreads()} if other threads copied.
 */
public final class SmChannelDeviceHandle {
  /** The default unit in bytes in which {@code put} and {@code get} divide work among threads. */
  public static final int DEFAULT_ALIGNMENT = 16;

  /** The bytes, kept alive if the host allocated them; otherwise null. */
  private final UnsafeBuffer memory;

  private final SemaphoreDeviceHandle semaphore = new SemaphoreDeviceHandle();
  private long target;
  private long targetSize;
  private long source;
  private long sourceSize;
  private long packets;
  private long packetsSize;

  /** Creates a flyweight over no bytes yet. */
  public SmChannelDeviceHandle() {
    this.memory = null;
  }

  SmChannelDeviceHandle(UnsafeBuffer memory) {
    this.memory = memory;
    wrap(memory.addressOffset());
  }

  /**
   * Wraps the bytes of a handle.
   *
   * @param address the address of the first byte
   * @return this handle
   */
  public SmChannelDeviceHandle wrap(long address) {
    semaphore.wrap(address + SEMAPHORE_OFFSET);
    target = HostMemory.getLong(address + TARGET_OFFSET);
    targetSize = HostMemory.getLong(address + TARGET_SIZE_OFFSET);
    source = HostMemory.getLong(address + SOURCE_OFFSET);
    sourceSize = HostMemory.getLong(address + SOURCE_SIZE_OFFSET);
    packets = HostMemory.getLong(address + PACKETS_OFFSET);
    packetsSize = HostMemory.getLong(address + PACKETS_SIZE_OFFSET);
    return this;
  }

  /** Returns the rank at the other end. */
  public int peer() {
    return semaphore.peer();
  }

  /** Returns the address of the peer's memory in this process. */
  public long targetAddress() {
    return target;
  }

  /**
   * Calls {@link #put(int, boolean, long, long, long, int, int)} for any number of bytes, divided
   * in units of 16.
   */
  public void put(long targetOffset, long sourceOffset, long size, int threadId, int numThreads) {
    put(DEFAULT_ALIGNMENT, true, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Copies from local memory to the peer's.
   *
   * @param alignment the unit in which work is divided among threads: 4, 8 or 16
   * @param copyRemainder whether to copy the bytes beyond the last whole unit
   * @param targetOffset the offset in the peer's memory
   * @param sourceOffset where in local memory
   * @param size the number of bytes
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads the number of threads that call this method together
   */
  public void put(
      int alignment,
      boolean copyRemainder,
      long targetOffset,
      long sourceOffset,
      long size,
      int threadId,
      int numThreads) {
    copy(true, alignment, copyRemainder, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Calls {@link #get(int, boolean, long, long, long, int, int)} for any number of bytes, divided
   * in units of 16.
   */
  public void get(long targetOffset, long sourceOffset, long size, int threadId, int numThreads) {
    get(DEFAULT_ALIGNMENT, true, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Copies from the peer's memory to local memory.
   *
   * @param alignment the unit in which work is divided among threads: 4, 8 or 16
   * @param copyRemainder whether to copy the bytes beyond the last whole unit
   * @param targetOffset the offset in the peer's memory
   * @param sourceOffset where in local memory
   * @param size the number of bytes
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads the number of threads that call this method together
   */
  public void get(
      int alignment,
      boolean copyRemainder,
      long targetOffset,
      long sourceOffset,
      long size,
      int threadId,
      int numThreads) {
    copy(false, alignment, copyRemainder, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Copies this thread's share. On a CPU the share is one contiguous range: with strided copies,
   * threads would contend for cache lines.
   */
  private void copy(
      boolean toTarget,
      int alignment,
      boolean copyRemainder,
      long targetOffset,
      long sourceOffset,
      long size,
      int threadId,
      int numThreads) {
    check("target", targetOffset, size, targetSize);
    check("source", sourceOffset, size, sourceSize);
    if (alignment != 4 && alignment != 8 && alignment != 16) {
      throw new InvalidUsage("alignment=" + alignment + "; give 4, 8 or 16");
    }
    long units = size / alignment;
    long begin = units * threadId / numThreads * alignment;
    long end = units * (threadId + 1) / numThreads * alignment;
    if (copyRemainder && threadId == numThreads - 1) {
      end = size;
    }
    long theirs = target + targetOffset + begin;
    long ours = source + sourceOffset + begin;
    HostMemory.copy(toTarget ? theirs : ours, toTarget ? ours : theirs, end - begin);
  }

  /**
   * Writes local memory to the peer as packets that each carry the flag. The peer reads them with
   * {@link #getPackets} from its packet buffer, which must be this channel's target.
   *
   * @param type the format
   * @param targetOffset the offset of the first packet in the peer's packet buffer
   * @param sourceOffset where in local memory
   * @param size bytes of payload, a multiple of {@link PacketType#payload()}
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads the number of threads that call this method together
   * @param flag the flag, which must differ from the one that the slots hold already
   */
  public void putPackets(
      PacketType type,
      long targetOffset,
      long sourceOffset,
      long size,
      int threadId,
      int numThreads,
      int flag) {
    checkPackets(type, size);
    check("target", targetOffset, size * 2, targetSize);
    check("source", sourceOffset, size, sourceSize);
    long highFlag = (long) flag << 32;
    long to = target + targetOffset;
    long from = source + sourceOffset;
    // An LL16 packet is two LL8 packets side by side; only the division among threads differs.
    int halves = type == PacketType.LL8 ? 1 : 2;
    for (long i = threadId, n = size / type.payload(); i < n; i += numThreads) {
      for (long half = i * halves; half < (i + 1) * halves; half++) {
        // One store writes data and flag: a thread that sees the flag sees the data, so no order
        // between packets is needed.
        long data = HostMemory.getInt(from + (half << 2)) & 0xffff_ffffL;
        HostMemory.putLongOpaque(to + (half << 3), highFlag | data);
      }
    }
  }

  /**
   * Copies the payload of the peer's packets from the local packet buffer, and waits for each until
   * it carries the flag.
   *
   * @param type the format
   * @param packetOffset the offset of the first packet in the packet buffer
   * @param sourceOffset the offset in local memory for the payload
   * @param size bytes of payload, a multiple of {@link PacketType#payload()}
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads the number of threads that call this method together
   * @param flag the flag that the sender writes
   * @return true when all packets of this thread have arrived; false when the communicator was
   *     aborted
   */
  public boolean getPackets(
      PacketType type,
      long packetOffset,
      long sourceOffset,
      long size,
      int threadId,
      int numThreads,
      int flag) {
    checkPackets(type, size);
    check("packet buffer", packetOffset, size * 2, packetsSize);
    check("source", sourceOffset, size, sourceSize);
    long at = packets + packetOffset;
    long to = source + sourceOffset;
    int halves = type == PacketType.LL8 ? 1 : 2;
    for (long i = threadId, n = size / type.payload(); i < n; i += numThreads) {
      for (long half = i * halves; half < (i + 1) * halves; half++) {
        long packet = HostMemory.getLongOpaque(at + (half << 3));
        for (int step = 0; (int) (packet >>> 32) != flag; ) {
          step = SpinWait.step(step, semaphore.abortAddress(), semaphore.peer());
          if (step < 0) {
            return false;
          }
          packet = HostMemory.getLongOpaque(at + (half << 3));
        }
        HostMemory.putInt(to + (half << 2), (int) packet);
      }
    }
    return true;
  }

  /** Calls {@code putPackets} with {@link PacketType#LL16}. */
  public void putPackets(
      long targetOffset, long sourceOffset, long size, int threadId, int numThreads, int flag) {
    putPackets(PacketType.LL16, targetOffset, sourceOffset, size, threadId, numThreads, flag);
  }

  /** Calls {@code getPackets} with {@link PacketType#LL16}. */
  public boolean getPackets(
      long packetOffset, long sourceOffset, long size, int threadId, int numThreads, int flag) {
    return getPackets(
        PacketType.LL16, packetOffset, sourceOffset, size, threadId, numThreads, flag);
  }

  private static void checkPackets(PacketType type, long size) {
    if (size % type.payload() != 0) {
      throw new InvalidUsage(
          "size=" + size + " is no multiple of " + type + "'s payload of " + type.payload());
    }
  }

  /** Returns 8 bytes of the peer's memory; {@code index} counts 8-byte words. */
  public long read(long index) {
    check("target", index * Long.BYTES, Long.BYTES, targetSize);
    return HostMemory.getLongOpaque(target + index * Long.BYTES);
  }

  /** Writes 8 bytes of the peer's memory; {@code index} counts 8-byte words. */
  public void write(long index, long value) {
    check("target", index * Long.BYTES, Long.BYTES, targetSize);
    HostMemory.putLongOpaque(target + index * Long.BYTES, value);
  }

  /** Returns 4 bytes of the peer's memory; {@code index} counts ints. */
  public int readInt(long index) {
    check("target", index * Integer.BYTES, Integer.BYTES, targetSize);
    return HostMemory.getIntOpaque(target + index * Integer.BYTES);
  }

  /** Writes 4 bytes of the peer's memory; {@code index} counts ints. */
  public void writeInt(long index, int value) {
    check("target", index * Integer.BYTES, Integer.BYTES, targetSize);
    HostMemory.putIntOpaque(target + index * Integer.BYTES, value);
  }

  /** Returns 2 bytes of the peer's memory; {@code index} counts shorts. */
  public short readShort(long index) {
    check("target", index * Short.BYTES, Short.BYTES, targetSize);
    return HostMemory.getShortOpaque(target + index * Short.BYTES);
  }

  /** Writes 2 bytes of the peer's memory; {@code index} counts shorts. */
  public void writeShort(long index, short value) {
    check("target", index * Short.BYTES, Short.BYTES, targetSize);
    HostMemory.putShortOpaque(target + index * Short.BYTES, value);
  }

  /** Returns a byte of the peer's memory. */
  public byte readByte(long index) {
    check("target", index, Byte.BYTES, targetSize);
    return HostMemory.getByteOpaque(target + index);
  }

  /** Writes a byte of the peer's memory. */
  public void writeByte(long index, byte value) {
    check("target", index, Byte.BYTES, targetSize);
    HostMemory.putByteOpaque(target + index, value);
  }

  /** Signals the peer. All earlier writes of this thread are visible to the peer then. */
  public void signal() {
    semaphore.signal();
  }

  /** Signals the peer without ordering earlier writes before the signal. */
  public void relaxedSignal() {
    semaphore.relaxedSignal();
  }

  /** Waits for the peer's next signal. Returns false when the communicator was aborted. */
  public boolean await() {
    return semaphore.await();
  }

  /** Takes the peer's next signal if it has arrived, and returns whether it has. */
  public boolean poll() {
    return semaphore.poll();
  }

  private static void check(String what, long offset, long length, long size) {
    if (offset < 0 || length < 0 || offset > size - length) {
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside its %s bytes", what, offset, length, size);
    }
  }
}
