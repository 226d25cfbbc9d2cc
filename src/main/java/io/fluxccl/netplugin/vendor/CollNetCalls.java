// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.NativeLibrary;

/** The native calls of collective networks, with the conventions of {@link NetPluginCalls}. */
final class CollNetCalls {
  static {
    NativeLibrary.isAvailable(); // loads the library
  }

  private CollNetCalls() {}

  static native long find(long library, int version);

  static native byte[] name(long coll);

  static native int init(long coll, int logLevel, long job);

  static native int finish(long coll);

  static native int devices(long coll, int[] count);

  static native int properties(long coll, int device, byte[][] texts, long[] numbers);

  static native long listen(long coll, int device, long handle);

  static native long connect(long coll, long handles, int nRanks, int rank, long listener);

  static native int reduceSupport(long coll, int type, int op);

  static native int register(
      long coll, long comm, long address, long size, int type, long[] memory);

  static native int deregister(long coll, long comm, long memory);

  static native long iallreduce(
      long coll,
      long comm,
      long from,
      long to,
      long count,
      int type,
      int op,
      long fromMemory,
      long toMemory);

  static native long iflush(long coll, long comm, long address, long size, long memory);

  static native int test(long coll, long request);

  static native int closeColl(long coll, long comm);

  static native int closeListen(long coll, long listener);
}
