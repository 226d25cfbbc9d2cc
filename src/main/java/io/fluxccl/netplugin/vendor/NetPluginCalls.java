// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.NativeLibrary;

/**
 * The native calls of network plugins. Strings are bytes without a NUL. Numbers stand for
 * libraries, plugins, comms, registrations, requests and addresses. A result is NCCL's code; a
 * method that returns a number returns the negated code on failure.
 */
final class NetPluginCalls {
  /** The versions of the interface that can be called, newest and oldest. */
  static final int NEWEST_VERSION = 12;

  static final int OLDEST_VERSION = 6;

  /** The most receives of a group. */
  static final int MAX_GROUP = 32;

  /** The count of numbers that {@link #properties} stores. */
  static final int PROPERTY_NUMBERS = 10;

  /** The size in bytes of the block that {@link #irecvGroup} and {@link #iflush} read. */
  static final int GROUP_BYTES = 4 * Long.BYTES * MAX_GROUP;

  static {
    NativeLibrary.isAvailable(); // loads the library
  }

  private NetPluginCalls() {}

  static native long openLibrary(byte[] name, byte[][] problem);

  static native void closeLibrary(long library);

  static native long keptSignals();

  static native boolean isFluxCcl(long library);

  static native byte[] path(long library);

  static native long find(long library, int version);

  static native byte[] name(long plugin);

  static native int init(long plugin, int logLevel, long job);

  static native int finish(long plugin);

  static native int devices(long plugin, int[] count);

  static native int properties(long plugin, int device, byte[][] texts, long[] numbers);

  static native long listen(long plugin, int device, long handle);

  static native long connect(long plugin, int device, long handle);

  static native long accept(long plugin, long listener);

  static native int register(
      long plugin, long comm, long address, long size, int type, long[] memory);

  static native int registerDmaBuf(
      long plugin,
      long comm,
      long address,
      long size,
      int type,
      long offset,
      int descriptor,
      long[] memory);

  static native int deregister(long plugin, long comm, long memory);

  static native long isend(long plugin, long comm, long address, long size, int tag, long memory);

  static native long irecv(long plugin, long comm, long address, long size, int tag, long memory);

  static native long irecvGroup(long plugin, long comm, int n, long group);

  static native long iflush(long plugin, long comm, int n, long group);

  static native int test(long plugin, long request, long sizes, int n);

  static native int closeSend(long plugin, long comm);

  static native int closeRecv(long plugin, long comm);

  static native int closeListen(long plugin, long comm);

  static native int nextLogLine(byte[][] texts, int[] numbers, int timeoutMillis);
}
