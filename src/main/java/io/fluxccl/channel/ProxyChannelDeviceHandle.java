// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.ProxyChannelDescriptor.FIFO_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.FLUSH_WORD_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SEMAPHORE_ID_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SEMAPHORE_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.SOURCE_ID_OFFSET;
import static io.fluxccl.channel.ProxyChannelDescriptor.TARGET_ID_OFFSET;
import static io.fluxccl.proxy.ChannelTrigger.DATA;
import static io.fluxccl.proxy.ChannelTrigger.FLUSH;
import static io.fluxccl.proxy.ChannelTrigger.SIGNAL;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.semaphore.SemaphoreDeviceHandle;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A ProxyChannel for kernels of the host device: a flyweight over the bytes of {@link
 * ProxyChannelDescriptor}. One thread makes each call. Several threads may make calls at once,
 * except {@code await} and {@code poll}. No method but {@link #wrap} allocates. Offsets and sizes
 * are bytes, below 4 GiB; the host checks them against the memories. A put with a larger size or
 * offset fails the channel and throws {@link InvalidUsage}.
 *
 * <p>Methods with a boolean result return false when the communicator was aborted or, for flushes,
 * when the channel has failed.
 */
public final class ProxyChannelDeviceHandle {
  /** The bytes, kept alive if the host allocated them; otherwise null. */
  private final UnsafeBuffer memory;

  private final SemaphoreDeviceHandle semaphore = new SemaphoreDeviceHandle();
  private FifoDeviceHandle fifo;
  private long flushWord;
  private int semaphoreId;
  private int targetId;
  private int sourceId;

  /** Creates a flyweight over no bytes yet. */
  public ProxyChannelDeviceHandle() {
    this.memory = null;
  }

  ProxyChannelDeviceHandle(UnsafeBuffer memory) {
    this.memory = memory;
    wrap(memory.addressOffset());
  }

  /**
   * Wraps the bytes of a handle.
   *
   * @param address the address of the first byte
   * @return this handle
   */
  public ProxyChannelDeviceHandle wrap(long address) {
    fifo = FifoDeviceHandle.at(address + FIFO_OFFSET);
    semaphore.wrap(address + SEMAPHORE_OFFSET);
    flushWord = HostMemory.getLong(address + FLUSH_WORD_OFFSET);
    semaphoreId = HostMemory.getInt(address + SEMAPHORE_ID_OFFSET);
    targetId = HostMemory.getInt(address + TARGET_ID_OFFSET);
    sourceId = HostMemory.getInt(address + SOURCE_ID_OFFSET);
    return this;
  }

  /** Returns the rank at the other end. */
  public int peer() {
    return semaphore.peer();
  }

  /**
   * Asks the proxy to copy from local memory to the peer's. The source must stay unchanged until a
   * flush.
   */
  public boolean put(long targetOffset, long sourceOffset, long size) {
    return push(DATA, targetOffset, sourceOffset, size) >= 0;
  }

  /** Calls {@link #put(long, long, long)} with the same offset in both memories. */
  public boolean put(long offset, long size) {
    return put(offset, offset, size);
  }

  /** Asks the proxy to signal the peer's semaphore after all earlier requests. */
  public boolean signal() {
    return push(SIGNAL, 0, 0, 0) >= 0;
  }

  /** Asks the proxy for {@link #put} and {@link #signal} in one trigger. */
  public boolean putWithSignal(long targetOffset, long sourceOffset, long size) {
    return push(DATA | SIGNAL, targetOffset, sourceOffset, size) >= 0;
  }

  /** Calls {@link #putWithSignal(long, long, long)} with the same offset in both memories. */
  public boolean putWithSignal(long offset, long size) {
    return putWithSignal(offset, offset, size);
  }

  /** Waits until the data of all earlier requests on this channel is in the peer's memory. */
  public boolean flush() {
    return awaitFlush(push(FLUSH, 0, 0, 0));
  }

  /**
   * Asks the proxy for {@link #put} and {@link #signal} in one trigger, and waits as {@link #flush}
   * does.
   */
  public boolean putWithSignalAndFlush(long targetOffset, long sourceOffset, long size) {
    return awaitFlush(push(DATA | SIGNAL | FLUSH, targetOffset, sourceOffset, size));
  }

  /**
   * Calls {@link #putWithSignalAndFlush(long, long, long)} with the same offset in both memories.
   */
  public boolean putWithSignalAndFlush(long offset, long size) {
    return putWithSignalAndFlush(offset, offset, size);
  }

  /**
   * Asks for the same as {@link #putWithSignalAndFlush(long, long, long)} but does not wait. {@link
   * #awaitFlush} waits later.
   *
   * @return the position for {@link #awaitFlush}; negative when the communicator was aborted
   */
  public long putWithSignalAndRequestFlush(long targetOffset, long sourceOffset, long size) {
    return push(DATA | SIGNAL | FLUSH, targetOffset, sourceOffset, size);
  }

  /** Waits for the peer's next signal. */
  public boolean await() {
    return semaphore.await();
  }

  /** Takes the peer's next signal if it has arrived, and returns whether it has. */
  public boolean poll() {
    return semaphore.poll();
  }

  private long push(int type, long targetOffset, long sourceOffset, long size) {
    if ((size | sourceOffset | targetOffset) >>> 32 != 0) {
      throw refuse(targetOffset, sourceOffset, size);
    }
    return fifo.push(
        ChannelTrigger.first(size, sourceOffset),
        ChannelTrigger.second(targetOffset, sourceId, targetId, type, semaphoreId));
  }

  /** Fails the channel, and returns the error for the kernel. */
  private InvalidUsage refuse(long targetOffset, long sourceOffset, long size) {
    ChannelTrigger.Argument argument = ChannelTrigger.Argument.DESTINATION_OFFSET;
    long value = targetOffset;
    if (size >>> 32 != 0) {
      argument = ChannelTrigger.Argument.SIZE;
      value = size;
    } else if (sourceOffset >>> 32 != 0) {
      argument = ChannelTrigger.Argument.SOURCE_OFFSET;
      value = sourceOffset;
    }
    long second = ChannelTrigger.refused(argument, semaphoreId);
    fifo.push(value, second);
    return ChannelTrigger.refusal(value, second);
  }

  /**
   * Waits for a requested flush.
   *
   * @param position a result of {@link #putWithSignalAndRequestFlush}
   */
  public boolean awaitFlush(long position) {
    if (position < 0) {
      return false;
    }
    int step = 0;
    while (true) {
      // Acquire: pairs with the releases in FlushTracker.
      long done = HostMemory.getLongAcquire(flushWord);
      if (done > position) {
        return true;
      }
      step =
          done == ProxyChannelDescriptor.FAILED
              ? SpinWait.ABORTED
              : SpinWait.step(step, semaphore.abortAddress(), semaphore.peer());
      if (step < 0) {
        return false;
      }
    }
  }
}
