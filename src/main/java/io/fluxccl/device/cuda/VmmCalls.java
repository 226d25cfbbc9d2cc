// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * The driver's virtual memory management, one native method per driver function. Each method
 * returns the CUresult and stores its result in the first element of an array. JCuda's bindings of
 * these functions leave reserved fields uninitialised, which the driver refuses.
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
}
