// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * The driver's virtual memory management, and memory pools that processes share. One native method
 * per driver function, which returns the CUresult and stores its result in the first element of an
 * array. JCuda's bindings leave reserved fields of VMM uninitialised, which the driver refuses, and
 * can't pass a descriptor of a pool in place of a pointer.
 */
final class VmmCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private VmmCalls() {}

  /**
   * Gets the granularity: sizes and addresses of shareable memory on the device must be multiples
   * of it.
   */
  static native int granularity(int device, long[] granularity);

  /** Allocates memory on the device that can be exported as a file descriptor. */
  static native int create(int device, long size, long[] handle);

  /** Releases a handle. The memory exists while it is mapped or a descriptor of it is open. */
  static native int release(long handle);

  /** Reserves addresses. */
  static native int reserve(long size, long alignment, long[] address);

  /** Frees reserved addresses. */
  static native int free(long address, long size);

  /** Maps memory at reserved addresses. */
  static native int map(long address, long size, long handle);

  /** Unmaps the memory at the addresses. */
  static native int unmap(long address, long size);

  /** Gives only these devices read and write access. */
  static native int setAccess(long address, long size, int[] devices);

  /**
   * Gets a handle of the memory that is mapped at an address. The handle keeps the memory until its
   * release.
   */
  static native int retain(long address, long[] handle);

  /** Creates a descriptor of the memory, which keeps the memory until it is closed. */
  static native int exportDescriptor(long handle, int[] descriptor);

  /** Creates a dma-buf of a range of whole pages, which keeps the memory until it is closed. */
  static native int exportDmaBuf(long address, long size, int[] descriptor);

  /** Creates a handle of a descriptor's memory. The caller still closes the descriptor. */
  static native int importDescriptor(int descriptor, long[] handle);

  /** Creates a descriptor of a shareable pool. */
  static native int exportPool(long pool, int[] descriptor);

  /** Creates the 64 bytes by which another process imports the pool's memory at an address. */
  static native int exportPointer(long address, byte[] data);

  /** Imports a pool of another process by its descriptor, which the caller still closes. */
  static native int importPool(int descriptor, long[] pool);

  /** Imports memory of an imported pool. Free its address by {@code cuMemFree}. */
  static native int importPointer(long pool, byte[] data, long[] address);

  /** Lets a device read and write all memory of a pool, now and later. */
  static native int setPoolAccess(long pool, int device);

  /** Destroys a pool, once its memory is freed. */
  static native int destroyPool(long pool);
}
