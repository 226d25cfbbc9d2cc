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
 * An SmChannel as kernels of the host device see it: a flyweight over the bytes of {@link
 * SmChannelDescriptor}. Nothing here allocates. Offsets and sizes are bytes; a range outside its
 * memory is refused with InvalidUsage.
 *
 * <p>{@code put}, {@code get} and the packet methods are called by {@code numThreads} threads
 * together, each with its own {@code threadId}; each does its share. {@code signal}, {@code await}
 * and {@code poll} are called by one thread, behind a {@code syncThreads()} where others copied.
 */
public final class SmChannelDeviceHandle {
  /** The unit in which {@code put} and {@code get} share out work when the caller names none. */
  public static final int DEFAULT_ALIGNMENT = 16;

  /** Keeps the bytes alive where the host allocated them; otherwise null. */
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
   * @param address of its first byte
   * @return this
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

  /** The rank at the other end. */
  public int peer() {
    return semaphore.peer();
  }

  /** The address of the peer's memory as mapped here. */
  public long targetAddress() {
    return target;
  }

  /**
   * {@link #put(int, boolean, long, long, long, int, int)} of any number of bytes, shared out in
   * units of 16.
   */
  public void put(long targetOffset, long sourceOffset, long size, int threadId, int numThreads) {
    put(DEFAULT_ALIGNMENT, true, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Copies from local memory to the peer's.
   *
   * @param alignment 4, 8 or 16: the unit in which work is shared out
   * @param copyRemainder whether bytes beyond the last whole unit are copied too
   * @param targetOffset where in the peer's memory
   * @param sourceOffset where in local memory
   * @param size how many bytes
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads how many threads call this together
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
   * {@link #get(int, boolean, long, long, long, int, int)} of any number of bytes, shared out in
   * units of 16.
   */
  public void get(long targetOffset, long sourceOffset, long size, int threadId, int numThreads) {
    get(DEFAULT_ALIGNMENT, true, targetOffset, sourceOffset, size, threadId, numThreads);
  }

  /**
   * Copies from the peer's memory to local memory.
   *
   * @param alignment 4, 8 or 16: the unit in which work is shared out
   * @param copyRemainder whether bytes beyond the last whole unit are copied too
   * @param targetOffset where in the peer's memory
   * @param sourceOffset where in local memory
   * @param size how many bytes
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads how many threads call this together
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
   * On a CPU a thread's share is one contiguous run: strided element copies would fight over cache
   * lines.
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
   * Writes local memory to the peer as packets that each carry the flag. The peer takes them with
   * {@link #getPackets} from its packet buffer, which must be this channel's target.
   *
   * @param type the format
   * @param targetOffset where in the peer's packet buffer the first packet goes
   * @param sourceOffset where in local memory
   * @param size bytes of payload, a multiple of {@link PacketType#payload()}
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads how many threads call this together
   * @param flag not the one that the slots hold already
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
    // An LL16 packet is two LL8 packets side by side; only how threads share them differs.
    int halves = type == PacketType.LL8 ? 1 : 2;
    for (long i = threadId, n = size / type.payload(); i < n; i += numThreads) {
      for (long half = i * halves; half < (i + 1) * halves; half++) {
        // Data and flag in one store: a thread that sees the flag sees the data, so no order
        // between
        // packets is needed.
        long data = HostMemory.getInt(from + (half << 2)) & 0xffff_ffffL;
        HostMemory.putLongOpaque(to + (half << 3), highFlag | data);
      }
    }
  }

  /**
   * Takes the peer's packets out of the local packet buffer, waiting for each until it carries the
   * flag.
   *
   * @param type the format
   * @param packetOffset where in the packet buffer the first packet is
   * @param sourceOffset where in local memory the payload goes
   * @param size bytes of payload, a multiple of {@link PacketType#payload()}
   * @param threadId this thread, 0 to numThreads - 1
   * @param numThreads how many threads call this together
   * @param flag what the sender writes
   * @return true when all of this thread's are there; false when the communicator was aborted
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

  private static void checkPackets(PacketType type, long size) {
    if (size % type.payload() != 0) {
      throw new InvalidUsage(
          "size=" + size + " is no multiple of " + type + "'s payload of " + type.payload());
    }
  }

  /** Reads 8 bytes of the peer's memory; {@code index} counts 8-byte words. */
  public long read(long index) {
    check("target", index * Long.BYTES, Long.BYTES, targetSize);
    return HostMemory.getLongOpaque(target + index * Long.BYTES);
  }

  /** Writes 8 bytes of the peer's memory; {@code index} counts 8-byte words. */
  public void write(long index, long value) {
    check("target", index * Long.BYTES, Long.BYTES, targetSize);
    HostMemory.putLongOpaque(target + index * Long.BYTES, value);
  }

  /** Signals the peer that everything this thread wrote before is there. */
  public void signal() {
    semaphore.signal();
  }

  /** {@link #signal()} without the promise about earlier writes. */
  public void relaxedSignal() {
    semaphore.relaxedSignal();
  }

  /** Waits for the peer's next signal; false when the communicator was aborted. */
  public boolean await() {
    return semaphore.await();
  }

  /** Takes the peer's next signal if it is there. */
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
