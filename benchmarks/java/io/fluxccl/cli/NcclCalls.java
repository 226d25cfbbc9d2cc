// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.NativeLibrary;

/**
 * The functions of a libnccl that {@link #open} opened. Strings are bytes without a NUL; addresses,
 * communicators and streams are numbers; results are ncclResult_t.
 */
final class NcclCalls {
  /** Bytes of the id of a communicator. */
  static final int UNIQUE_ID_BYTES = 128;

  static {
    NativeLibrary.isAvailable(); // loads it
  }

  private NcclCalls() {}

  /** Opens a library, for good; throws UnsatisfiedLinkError with the loader's message. */
  static native long open(byte[] path);

  /** Returns the file of the library. */
  static native byte[] path(long library);

  /** Stores the version: 22809 for 2.28.9. */
  static native int version(long library, int[] result);

  /** Returns NCCL's message for a result. */
  static native byte[] describe(long library, int status);

  /** Stores the id of a new communicator. */
  static native int uniqueId(long library, byte[] result);

  /** Joins a communicator with the thread's current GPU; waits for all ranks. */
  static native int init(long library, byte[] id, int nRanks, int rank, long[] result);

  /** Ends a communicator whose work is done. */
  static native int destroy(long library, long communicator);

  /** Ends a communicator, and its kernels, at once. From any thread. */
  static native int abort(long library, long communicator);

  /** Returns the error of a call that had returned before it failed. */
  static native int asyncError(long library, long communicator);

  static native int allReduce(
      long library, long in, long out, long count, int type, int op, long comm, long stream);

  static native int allGather(
      long library, long in, long out, long count, int type, long comm, long stream);

  static native int reduceScatter(
      long library, long in, long out, long count, int type, int op, long comm, long stream);

  static native int broadcast(
      long library, long in, long out, long count, int type, int root, long comm, long stream);

  static native int reduce(
      long library,
      long in,
      long out,
      long count,
      int type,
      int op,
      int root,
      long comm,
      long stream);

  /** Returns whether the library has the functions of symmetric windows, from 2.27 on. */
  static native boolean hasWindows(long library);

  /** Allocates memory of the thread's current GPU that can be a window; stores its address. */
  static native int allocate(long library, long bytes, long[] result);

  /** Frees memory of {@link #allocate}. */
  static native int free(long library, long address);

  /**
   * Makes memory of the same size a symmetric window on every rank; waits for all of them. Stores
   * the window; 0 if the ranks cannot have one.
   */
  static native int register(long library, long comm, long address, long bytes, long[] result);

  /** Ends a window. */
  static native int deregister(long library, long comm, long window);

  /**
   * Sends to and receives from all peers as one group; {@code parts} has four numbers a peer:
   * offset in bytes and elements to send, offset in bytes and elements to receive.
   */
  static native int exchange(
      long library, long in, long out, long[] parts, int type, long comm, long stream);
}
