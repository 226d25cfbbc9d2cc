package io.fluxccl.proxy;

import static io.fluxccl.proxy.FifoDescriptor.DEVICE_LENGTH;
import static io.fluxccl.proxy.FifoDescriptor.FIRST_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.HEAD_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.SECOND_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TAIL_CACHE_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TAIL_OFFSET;
import static io.fluxccl.proxy.FifoDescriptor.TRIGGERS_OFFSET;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.AbortFlagDescriptor;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import org.agrona.concurrent.AtomicBuffer;

/**
 * The host's end of the ring: takes off what kernels push, in the order of their positions. One
 * thread at a time calls {@link #poll()}, {@link #pop()} and {@link #publishTail()}; producers are
 * many and hold a {@link FifoDeviceHandle}. Laid out as {@link FifoDescriptor} says.
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
   * An empty ring of {@link FifoDescriptor#DEFAULT_SIZE} triggers.
   *
   * @param device whose kernels push
   * @throws io.fluxccl.DeviceFailure if there is no memory for it
   */
  public Fifo(Device device) {
    this(device, FifoDescriptor.DEFAULT_SIZE);
  }

  /**
   * An empty ring.
   *
   * @param device whose kernels push
   * @param size triggers, a power of two
   * @throws io.fluxccl.InvalidUsage if {@code size} is none
   * @throws io.fluxccl.DeviceFailure if there is no memory for it
   */
  public Fifo(Device device, int size) {
    this.size = FifoDescriptor.checkSize(size);
    this.sizeShift = Integer.numberOfTrailingZeros(size);
    this.pinned = device.allocatePinned(FifoDescriptor.pinnedLength(size));
    try {
      // Head and tail cache lie with the producers: a push must not read across the bus.
      this.control = device.allocate(DEVICE_LENGTH);
    } catch (RuntimeException | Error failure) {
      pinned.close();
      throw failure;
    }
    this.buffer = pinned.buffer();
  }

  /** Triggers that the ring holds. */
  public int size() {
    return size;
  }

  /** The position of the next trigger to take: how many were popped so far. */
  public long position() {
    return position;
  }

  /**
   * Checks for the trigger at {@link #position()} and, if it is there, loads it for {@link
   * #first()} and {@link #second()}. Never waits.
   *
   * @return whether it is there
   */
  public boolean poll() {
    int slot = TRIGGERS_OFFSET + FifoDescriptor.slotOffset(position, size);
    // Pairs with the release of the second word in FifoDeviceHandle.push.
    long stored = buffer.getLongAcquire(slot + SECOND_OFFSET);
    if (!ProxyTrigger.isCommitted(stored, position >>> sizeShift)) {
      return false;
    }
    first = buffer.getLong(slot + FIRST_OFFSET);
    second = ProxyTrigger.payload(stored);
    return true;
  }

  /** The first word of the trigger that {@link #poll()} found. */
  public long first() {
    return first;
  }

  /** The second word of the trigger that {@link #poll()} found, without the commit bit. */
  public long second() {
    return second;
  }

  /** Advances to the next position. Producers see it after {@link #publishTail()}. */
  public void pop() {
    position++;
  }

  /** Publishes to producers that everything popped so far has been handled. */
  public void publishTail() {
    // Pairs with the acquire of the tail in FifoDeviceHandle: slots are read, handlers' effects
    // done.
    buffer.putLongRelease(TAIL_OFFSET, position);
  }

  /** How many triggers were popped and published. Any thread. */
  public long tail() {
    return buffer.getLongAcquire(TAIL_OFFSET);
  }

  /** How many triggers are committed from {@link #position()} on without a gap. */
  int committed() {
    int count = 0;
    while (count < size) {
      long next = position + count;
      int slot = TRIGGERS_OFFSET + FifoDescriptor.slotOffset(next, size);
      // Pairs with the release of the second word in FifoDeviceHandle.push.
      long stored = buffer.getLongAcquire(slot + SECOND_OFFSET);
      if (!ProxyTrigger.isCommitted(stored, next >>> sizeShift)) {
        break;
      }
      count++;
    }
    return count;
  }

  /**
   * The producers' end. On the host device it can be used as it is; any kernel takes it as the
   * bytes that {@link FifoDeviceHandle#encode} writes.
   *
   * @param abort what a waiting producer watches; must outlive the handle's use
   * @return the handle, valid until this is closed
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

  /** Frees the ring. No producer and no consumer may use it any more. Idempotent. */
  @Override
  public void close() {
    control.close();
    pinned.close();
  }
}
