// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.proxy.FifoDescriptor.DEVICE_LENGTH;
import static io.fluxccl.proxy.FifoDescriptor.FIRST_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HEAD_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.SECOND_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TAIL_CACHE_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TAIL_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TRIGGERS_OFFSET;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.AbortFlagDescriptor;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import org.agrona.concurrent.AtomicBuffer;

/**
 * The host's end of the ring: takes the triggers that kernels push, in the order of their
 * positions. One thread at a time calls {@link #poll()}, {@link #pop()} and {@link #publishTail()}.
 * Any number of producers push through a {@link FifoDeviceHandle}. {@link FifoDescriptor} defines
 * the memory layout.
 *
 * <pre>
 *   while (fifo.poll()) {
 *     handle(fifo.first(), fifo.second());
 *     fifo.pop();            // handled, and not yet published
 *   }
 *   fifo.publishTail();      // producers may reuse the slots, sync() returns
 * </pre>
 */
public final class Fifo implements AutoCloseable {
  private final int size;
  private final int sizeShift;
  private final PinnedBuffer pinned;
  private final DeviceBuffer control;
  private final AtomicBuffer buffer;

  private long position;
  private long first;
  private long second;

  /**
   * Creates an empty ring of {@link FifoDescriptor#DEFAULT_SIZE} triggers.
   *
   * @param device the device whose kernels push
   * @throws io.fluxccl.DeviceFailure if the ring's memory can't be allocated
   */
  public Fifo(Device device) {
    this(device, FifoDescriptor.DEFAULT_SIZE);
  }

  /**
   * Creates an empty ring.
   *
   * @param device the device whose kernels push
   * @param size the number of triggers, a power of two
   * @throws io.fluxccl.InvalidUsage if {@code size} is not a power of two
   * @throws io.fluxccl.DeviceFailure if the ring's memory can't be allocated
   */
  public Fifo(Device device, int size) {
    this.size = FifoDescriptor.checkSize(size);
    this.sizeShift = Integer.numberOfTrailingZeros(size);
    this.pinned = device.allocatePinned(FifoDescriptor.pinnedLength(size));
    // Head and tail cache are in the producers' memory: a push must not read across the bus.
    this.control = Closing.onFailure(pinned::close, () -> device.allocate(DEVICE_LENGTH));
    this.buffer = pinned.buffer();
  }

  /** Returns the number of triggers that the ring can hold. */
  public int size() {
    return size;
  }

  /** Returns the position of the next trigger to take, which is the number popped so far. */
  public long position() {
    return position;
  }

  /**
   * Loads the trigger at {@link #position()} for {@link #first()} and {@link #second()}, if it is
   * committed. Never waits.
   *
   * @return whether the trigger is committed
   */
  public boolean poll() {
    int slot = TRIGGERS_OFFSET + FifoDescriptor.slotOffset(position, size);
    // Acquire: pairs with the release of the second word in FifoDeviceHandle.push.
    long stored = buffer.getLongAcquire(slot + SECOND_OFFSET);
    if (!ProxyTrigger.isCommitted(stored, position >>> sizeShift)) {
      return false;
    }
    first = buffer.getLong(slot + FIRST_OFFSET);
    second = ProxyTrigger.payload(stored);
    return true;
  }

  /** Returns the first word of the trigger that {@link #poll()} loaded. */
  public long first() {
    return first;
  }

  /** Returns the second word of the trigger that {@link #poll()} loaded, without the commit bit. */
  public long second() {
    return second;
  }

  /** Advances to the next position. {@link #publishTail()} makes it visible to producers. */
  public void pop() {
    position++;
  }

  /** Publishes to producers that everything popped so far has been handled. */
  public void publishTail() {
    // Release: pairs with the acquire of the tail in FifoDeviceHandle. It orders the reads of slots
    // and the effects of handlers before the new tail.
    buffer.putLongRelease(TAIL_OFFSET, position);
  }

  /** Returns the number of triggers popped and published. Any thread. */
  public long tail() {
    return buffer.getLongAcquire(TAIL_OFFSET);
  }

  /** Returns the number of triggers committed from {@link #position()} on without a gap. */
  int committed() {
    int count = 0;
    while (count < size) {
      long next = position + count;
      int slot = TRIGGERS_OFFSET + FifoDescriptor.slotOffset(next, size);
      // Acquire: pairs with the release of the second word in FifoDeviceHandle.push.
      long stored = buffer.getLongAcquire(slot + SECOND_OFFSET);
      if (!ProxyTrigger.isCommitted(stored, next >>> sizeShift)) {
        break;
      }
      count++;
    }
    return count;
  }

  /**
   * Returns the producers' end. Kernels of the host device can use the object; other kernels
   * receive it as the bytes that {@link FifoDeviceHandle#writeHandle} writes.
   *
   * @param abort the flag that a waiting producer polls; must outlive the use of the handle
   * @return the handle, valid until this ring is closed
   */
  public FifoDeviceHandle deviceHandle(AbortFlag abort) {
    return new FifoDeviceHandle(
        pinned.deviceAddress() + TRIGGERS_OFFSET,
        control.address() + HEAD_OFFSET,
        pinned.deviceAddress() + TAIL_OFFSET,
        control.address() + TAIL_CACHE_OFFSET,
        abort.deviceAddress() + AbortFlagDescriptor.ABORTED_OFFSET,
        size);
  }

  /** Frees the ring, which no producer or consumer may use any more. Idempotent. */
  @Override
  public void close() {
    control.close();
    pinned.close();
  }
}
