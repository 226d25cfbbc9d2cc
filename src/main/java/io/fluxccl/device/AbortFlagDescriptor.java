// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;

/**
 * The layout of an {@link AbortFlag} in pinned memory, the same for host threads and kernels. Two
 * cache lines, so that polling the flag and noting the awaited rank do not disturb each other.
 *
 * <pre>
 *   offset  0  int64  aborted: 0 = running, otherwise aborted
 *   offset 64  int64  target of the latest long wait of a kernel: 0 = none, rank + 1 = that peer,
 *                     -1 = this rank's proxy
 * </pre>
 */
@Experimental
public final class AbortFlagDescriptor {
  /** Byte offset of the flag. */
  public static final int ABORTED_OFFSET = 0;

  /** Byte offset of the target of a long wait. */
  public static final int WAITING_FOR_OFFSET = 64;

  /** Value of that word: the proxy of the kernel's own rank. */
  public static final long OWN_PROXY = -1;

  /** Bytes in all. */
  public static final int LENGTH = 128;

  private AbortFlagDescriptor() {}
}
