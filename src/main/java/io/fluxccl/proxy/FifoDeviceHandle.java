// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.device.host.HostMemory.getAndAddLong;
import static io.fluxccl.device.host.HostMemory.getInt;
import static io.fluxccl.device.host.HostMemory.getLong;
import static io.fluxccl.device.host.HostMemory.getLongAcquire;
import static io.fluxccl.device.host.HostMemory.putLong;
import static io.fluxccl.device.host.HostMemory.putLongRelease;
import static io.fluxccl.proxy.FifoDescriptor.FIRST_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_ABORT_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_HEAD_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_LENGTH;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_SIZE_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_TAIL_CACHE_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_TAIL_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HANDLE_TRIGGERS_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.SECOND_OFFSET;

import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import java.util.concurrent.locks.LockSupport;
import org.agrona.MutableDirectBuffer;

/**
 * A producer's end of the ring, for kernels of the host device; other kernels receive it as bytes.
 * Immutable: any number of threads may push through it, or through copies of it. It holds raw
 * addresses only, so it must not be used once the {@link Fifo} or the abort flag is closed.
 */
public final class FifoDeviceHandle implements DeviceHandle {
  /** The result of a {@link #push} that was aborted. */
  public static final long ABORTED = -1;

  private static final int SPINS = Runtime.getRuntime().availableProcessors() > 1 ? 200 : 0;
  private static final int YIELDS = 400;
  private static final long PARK_NANOS = 20_000;

  private final long triggers;
  private final long head;
  private final long tail;
  private final long tailCache;
  private final long abort;
  private final int size;
  private final int sizeShift;

  FifoDeviceHandle(long triggers, long head, long tail, long tailCache, long abort, int size) {
    this.triggers = triggers;
    this.head = head;
    this.tail = tail;
    this.tailCache = tailCache;
    this.abort = abort;
    this.size = FifoDescriptor.checkSize(size);
    this.sizeShift = Integer.numberOfTrailingZeros(size);
  }

  /**
   * Returns the handle whose bytes {@link #writeHandle} wrote to an address.
   *
   * @param address the address of {@link FifoDescriptor#HANDLE_LENGTH} bytes
   * @return the handle
   * @throws io.fluxccl.InvalidUsage if the bytes hold an impossible size of a ring
   */
  public static FifoDeviceHandle at(long address) {
    return new FifoDeviceHandle(
        getLong(address + HANDLE_TRIGGERS_OFFSET),
        getLong(address + HANDLE_HEAD_OFFSET),
        getLong(address + HANDLE_TAIL_OFFSET),
        getLong(address + HANDLE_TAIL_CACHE_OFFSET),
        getLong(address + HANDLE_ABORT_OFFSET),
        getInt(address + HANDLE_SIZE_OFFSET));
  }

  @Override
  public int handleLength() {
    return HANDLE_LENGTH;
  }

  /**
   * Writes the handle in the form that kernels read.
   *
   * @param target the buffer to write to
   * @param offset the offset in the buffer of {@link FifoDescriptor#HANDLE_LENGTH} bytes
   */
  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    target.boundsCheck(offset, HANDLE_LENGTH);
    target.putLong(offset + HANDLE_TRIGGERS_OFFSET, triggers, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_HEAD_OFFSET, head, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_TAIL_OFFSET, tail, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_TAIL_CACHE_OFFSET, tailCache, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + HANDLE_ABORT_OFFSET, abort, ByteOrder.LITTLE_ENDIAN);
    target.putInt(offset + HANDLE_SIZE_OFFSET, size, ByteOrder.LITTLE_ENDIAN);
    target.putInt(offset + HANDLE_SIZE_OFFSET + Integer.BYTES, 0, ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Pushes a trigger; waits while the ring is full. Any thread.
   *
   * <p>An aborted push leaves a gap: triggers pushed after it are not handled. The abort flag stays
   * set, so the ring can't be used any more.
   *
   * @param first the first word
   * @param second the second word; its bit 63 is ignored
   * @return the trigger's position, for {@link #sync}; {@link #ABORTED} if the abort flag was set
   *     while the ring was full
   */
  public long push(long first, long second) {
    long position = getAndAddLong(head, 1);
    // Acquire: pairs with the release in awaitTail, by which another producer passes on the tail
    // that it acquired from the consumer.
    if (position - getLongAcquire(tailCache) >= size && !awaitTail(position - size)) {
      return ABORTED;
    }
    long slot = triggers + FifoDescriptor.slotOffset(position, size);
    putLong(slot + FIRST_OFFSET, first);
    // Release: pairs with the acquire of the second word in Fifo.poll.
    putLongRelease(slot + SECOND_OFFSET, ProxyTrigger.commit(second, position >>> sizeShift));
    return position;
  }

  /**
   * Waits until the trigger at a position has been handled; the effects of its handler are visible
   * then. Any thread.
   *
   * @param position a result of {@link #push}
   * @return true when the trigger has been handled; false if the abort flag was set first, or
   *     {@code position} is {@link #ABORTED}
   */
  public boolean sync(long position) {
    if (position < 0) {
      return false;
    }
    // Acquire: pairs with the release in awaitTail.
    return getLongAcquire(tailCache) > position || awaitTail(position);
  }

  /**
   * Waits until every trigger pushed before, by any thread, has been handled. Any thread.
   *
   * @return false if the abort flag was set first
   */
  public boolean sync() {
    long pushed = getLongAcquire(head);
    return pushed == 0 || sync(pushed - 1);
  }

  /** Waits until the tail is past a position. Returns false if the abort flag was set first. */
  private boolean awaitTail(long position) {
    int waits = 0;
    while (true) {
      // Acquire: pairs with the release in Fifo.publishTail.
      long seen = getLongAcquire(tail);
      if (seen > position) {
        // Release: pairs with the acquires in push and sync. A slower producer may store an older
        // tail over a newer one; then the next producer only has to read the real tail.
        putLongRelease(tailCache, seen);
        return true;
      }
      // Acquire: pairs with the release in AbortFlag.set.
      if (getLongAcquire(abort) != 0) {
        return false;
      }
      waits = pause(waits);
    }
  }

  /**
   * Pauses between two polls of the tail: spins, then yields, then sleeps. Not {@code SpinWait},
   * which would spin for a millisecond: {@code SpinPolicy} does not count all producers, and more
   * of them than cores must not starve the proxy.
   *
   * @param count the number of pauses in this wait so far, from 0
   * @return the count for the next pause
   */
  private static int pause(int count) {
    if (count < SPINS) {
      Thread.onSpinWait();
    } else if (count < SPINS + YIELDS) {
      Thread.yield();
    } else {
      LockSupport.parkNanos(PARK_NANOS);
      return count;
    }
    return count + 1;
  }
}
