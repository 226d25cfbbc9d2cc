// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.Experimental;
import io.fluxccl.semaphore.SemaphoreDescriptor;

/**
 * The layout of an SmChannel's device handle. The bytes are the same for host kernels and for CUDA.
 * All fields are little-endian 64-bit; sizes are in bytes.
 *
 * <pre>
 *     0  the semaphore's handle ({@link SemaphoreDescriptor})
 *    48  address of the peer's memory as mapped here      56  its size
 *    64  address of the local memory                      72  its size
 *    80  address of the local packet buffer, 0 for none   88  its size
 * </pre>
 */
@Experimental
public final class SmChannelDescriptor {
  /** Offset of the semaphore's handle. */
  public static final int SEMAPHORE_OFFSET = 0;

  /** Offset of the address of the peer's memory. */
  public static final int TARGET_OFFSET = SemaphoreDescriptor.HANDLE_LENGTH;

  /** Offset of the size of the peer's memory. */
  public static final int TARGET_SIZE_OFFSET = TARGET_OFFSET + Long.BYTES;

  /** Offset of the address of the local memory. */
  public static final int SOURCE_OFFSET = TARGET_SIZE_OFFSET + Long.BYTES;

  /** Offset of the size of the local memory. */
  public static final int SOURCE_SIZE_OFFSET = SOURCE_OFFSET + Long.BYTES;

  /** Offset of the address of the local packet buffer. */
  public static final int PACKETS_OFFSET = SOURCE_SIZE_OFFSET + Long.BYTES;

  /** Offset of the size of the local packet buffer. */
  public static final int PACKETS_SIZE_OFFSET = PACKETS_OFFSET + Long.BYTES;

  /** The length of the handle in bytes. */
  public static final int LENGTH = PACKETS_SIZE_OFFSET + Long.BYTES;

  private SmChannelDescriptor() {}
}
