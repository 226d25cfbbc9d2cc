// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;

/**
 * The driver's virtual memory management, one native method a driver function; each returns its
 * CUresult and puts its result into the first place of an array. JCuda's own bindings of these
 * leave reserved fields uninitialised, which the driver refuses.
 */
final class VmmCalls {
  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private VmmCalls() {}

  /** What sizes and addresses on that device must be multiples of, for shareable memory. */
  static native int granularity(int device, long[] granularity);

  /** New memory on the device that can be exported as a file descriptor. */
  static native int create(int device, long size, long[] handle);

  /** Releases a handle; the memory lives while it is mapped or a descriptor of it is open. */
  static native int release(long handle);

  /** Reserves addresses. */
  static native int reserve(long size, long alignment, long[] address);

  /** Gives addresses back. */
  static native int free(long address, long size);

  /** Puts memory behind addresses. */
  static native int map(long address, long size, long handle);

  /** Takes the memory from behind the addresses. */
  static native int unmap(long address, long size);

  /** Lets these devices, and only they, read and write there. */
  static native int setAccess(long address, long size, int[] devices);

  /** A handle of the memory that is mapped at an address, to be released; it keeps the memory. */
  static native int retain(long address, long[] handle);

  /** A new descriptor of the memory, which keeps it alive until it is closed. */
  static native int exportDescriptor(long handle, int[] descriptor);

  /** A dma-buf of a range of whole pages, which keeps its memory alive until it is closed. */
  static native int exportDmaBuf(long address, long size, int[] descriptor);

  /** A handle of the memory behind a descriptor, which stays the caller's to close. */
  static native int importDescriptor(int descriptor, long[] handle);
}
