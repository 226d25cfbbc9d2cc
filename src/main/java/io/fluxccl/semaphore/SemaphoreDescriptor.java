// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.Experimental;

/**
 * The layout of a semaphore's state in device memory and of the handle that kernels get, the same
 * bytes for host kernels and for CUDA. All little-endian 64-bit.
 *
 * <pre>
 *   state    0  inbound    raised by the peer only; a cache line of its own
 *           64  expected   raised by this side's waits
 *           72  outbound   raised by this side's signals
 *
 *   handle   0  address of inbound
 *            8  address of expected
 *           16  address of outbound, 0 where the host signals
 *           24  address of the peer's inbound as mapped here, 0 where the host signals
 *           32  address of the abort flag
 *           40  rank of the peer
 * </pre>
 */
@Experimental
public final class SemaphoreDescriptor {
  /** Offset of the inbound value in the state. */
  public static final int INBOUND_OFFSET = 0;

  /** Offset of the expected inbound value in the state. */
  public static final int EXPECTED_OFFSET = 64;

  /** Offset of the outbound value in the state. */
  public static final int OUTBOUND_OFFSET = 72;

  /** Bytes of the state. */
  public static final int STATE_LENGTH = 128;

  /** Offset of the inbound value's address in the handle. */
  public static final int HANDLE_INBOUND_OFFSET = 0;

  /** Offset of the expected value's address in the handle. */
  public static final int HANDLE_EXPECTED_OFFSET = 8;

  /** Offset of the outbound value's address in the handle. */
  public static final int HANDLE_OUTBOUND_OFFSET = 16;

  /** Offset of the peer's inbound value's address in the handle. */
  public static final int HANDLE_REMOTE_INBOUND_OFFSET = 24;

  /** Offset of the abort flag's address in the handle. */
  public static final int HANDLE_ABORT_OFFSET = 32;

  /** Offset of the peer's rank in the handle. */
  public static final int HANDLE_PEER_OFFSET = 40;

  /** Bytes of the handle. */
  public static final int HANDLE_LENGTH = 48;

  private SemaphoreDescriptor() {}
}
