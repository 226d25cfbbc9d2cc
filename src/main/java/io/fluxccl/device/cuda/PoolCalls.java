// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * Memory pools that processes share, one native method per driver function. Each method returns the
 * CUresult and stores its result in the first element of an array. JCuda can't pass a descriptor in
 * place of a pointer.
 */
final class PoolCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private PoolCalls() {}

  /** Creates a descriptor of a shareable pool. */
  static native int exportPool(long pool, int[] descriptor);

  /** Creates the 64 bytes by which another process imports the pool's memory at an address. */
  static native int exportPointer(long address, byte[] data);

  /** Imports a pool of another process by its descriptor, which the caller still closes. */
  static native int importPool(int descriptor, long[] pool);

  /** Imports memory of an imported pool. Free its address by {@code cuMemFree}. */
  static native int importPointer(long pool, byte[] data, long[] address);

  /** Lets a device read and write all memory of a pool, now and later. */
  static native int setAccess(long pool, int device);

  /** Destroys a pool, once its memory is freed. */
  static native int destroy(long pool);
}
