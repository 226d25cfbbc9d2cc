// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.Experimental;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.semaphore.SemaphoreDescriptor;

/**
 * The layout of a ProxyChannel's device handle, and of the flush words in which the proxy
 * acknowledges flushes. The bytes are the same for host kernels and for CUDA. Little-endian.
 *
 * <pre>
 *   handle   0  the ring's handle ({@link FifoDescriptor})
 *           48  the semaphore's handle ({@link SemaphoreDescriptor}), for waiting only
 *           96  int64  address of this semaphore's flush word
 *          104  int32  semaphore id      108  int32  id of the peer's memory
 *          112  int32  id of the local memory     116  padding
 *
 *   flush word, pinned memory, one cache line a semaphore
 *            0  int64  every flush pushed at a ring position below this is done; negative: the channel has failed
 * </pre>
 */
@Experimental
public final class ProxyChannelDescriptor {
  /** Offset of the ring's handle. */
  public static final int FIFO_OFFSET = 0;

  /** Offset of the semaphore's handle. */
  public static final int SEMAPHORE_OFFSET = FIFO_OFFSET + FifoDescriptor.HANDLE_LENGTH;

  /** Offset of the flush word's address. */
  public static final int FLUSH_WORD_OFFSET = SEMAPHORE_OFFSET + SemaphoreDescriptor.HANDLE_LENGTH;

  /** Offset of the semaphore id. */
  public static final int SEMAPHORE_ID_OFFSET = FLUSH_WORD_OFFSET + Long.BYTES;

  /** Offset of the id of the peer's memory. */
  public static final int TARGET_ID_OFFSET = SEMAPHORE_ID_OFFSET + Integer.BYTES;

  /** Offset of the id of the local memory. */
  public static final int SOURCE_ID_OFFSET = TARGET_ID_OFFSET + Integer.BYTES;

  /** The length of the handle in bytes. */
  public static final int LENGTH = SOURCE_ID_OFFSET + 2 * Integer.BYTES;

  /** The distance in bytes between the flush words of two semaphores. */
  public static final int FLUSH_WORD_STRIDE = 64;

  /** The value of a flush word once its channel has failed. */
  public static final long FAILED = -1;

  private ProxyChannelDescriptor() {}
}
