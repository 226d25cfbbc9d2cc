// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;

/**
 * The layout of an {@link AbortFlag} in pinned memory, the same for host threads and kernels. Two
 * cache lines, so that polling the flag and noting the awaited rank do not disturb each other.
 *
 * <pre>
 *   offset  0  int64  aborted: 0 go on, otherwise give up
 *   offset 64  int64  waiting for, where a kernel last began to wait long: 0 none, rank + 1 of a peer,
 *                     -1 the proxy of its own rank
 * </pre>
 */
@Experimental
public final class AbortFlagDescriptor {
  /** Byte offset of the flag. */
  public static final int ABORTED_OFFSET = 0;

  /** Byte offset of the peer that is waited for. */
  public static final int WAITING_FOR_OFFSET = 64;

  /** Value of that word: the proxy of the kernel's own rank. */
  public static final long OWN_PROXY = -1;

  /** Bytes in all. */
  public static final int LENGTH = 128;

  private AbortFlagDescriptor() {}
}
