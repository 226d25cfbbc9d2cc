// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * Memory pools of which processes share memory, one native method a driver function; each returns
 * its CUresult and puts its result into the first place of an array. JCuda can't pass a descriptor
 * in place of a pointer.
 */
final class PoolCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private PoolCalls() {}

  /** A new descriptor of a pool that was made shareable. */
  static native int exportPool(long pool, int[] descriptor);

  /** What tells another process which memory of the pool begins at an address: 64 bytes. */
  static native int exportPointer(long address, byte[] data);

  /** A pool of another process by its descriptor, which stays the caller's to close. */
  static native int importPool(int descriptor, long[] pool);

  /** The address of another process's memory in an imported pool; freed by {@code cuMemFree}. */
  static native int importPointer(long pool, byte[] data, long[] address);

  /** Lets a device read and write all memory of a pool, now and later. */
  static native int setAccess(long pool, int device);

  /** Destroys a pool, once its memory is freed. */
  static native int destroy(long pool);
}
