// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.RankTopology;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;

/**
 * One rank as {@code perf} uses it: two buffers, collectives on them, and a control network to
 * agree on times. Called from one thread, except for {@link #close()}.
 *
 * <p>Every method that waits ends by its deadline with a {@link io.fluxccl.FluxCclException}.
 */
interface PerfRank extends AutoCloseable {
  /** The two buffers of each rank. */
  enum Buffer {
    /** Holds the input of calls out of place. */
    INPUT,
    /** Holds the output, and both input and output of calls in place. */
    OUTPUT
  }

  /** Returns the number of this rank, from 0. */
  int rank();

  /** Returns how many ranks there are. */
  int nRanks();

  /** Returns a line that describes the device and its transports. */
  String device();

  /**
   * Allocates the buffers and prepares both libraries. Called once, by every rank.
   *
   * @param bytes the size of each buffer, 1 or more
   */
  void prepare(long bytes);

  /** Returns this library. */
  MeasuredLibrary library();

  /** Returns the ways to use the library that this one is compared with; empty if there is none. */
  List<MeasuredLibrary> peers();

  /**
   * Returns the names of the algorithms that support a case, equal on every rank. The first one
   * would be chosen.
   */
  List<String> algorithms(PerfCase shape, BufferAliasing placement);

  /**
   * Uses an algorithm for the collective of a case from now on, wherever it can. All ranks call it
   * at the same point.
   *
   * @param algorithm its name; empty: the library chooses again
   */
  void prefer(PerfCase shape, Optional<String> algorithm);

  /** Returns the hosts and devices of all ranks. */
  RankTopology topology();

  /**
   * Copies the remaining bytes of {@code source} into a buffer. No call is in flight.
   *
   * @param offset bytes from the start of the buffer
   * @param source its position is moved to its limit
   */
  void upload(Buffer buffer, long offset, ByteBuffer source);

  /**
   * Fills {@code target} from a buffer. No call is in flight.
   *
   * @param offset bytes from the start of the buffer
   * @param target its position is moved to its limit
   */
  void download(Buffer buffer, long offset, ByteBuffer target);

  /** Returns when every rank has called it. */
  void barrier(Deadline deadline);

  /** Returns the time by which calls are measured, in nanoseconds from any origin. */
  default long nanoTime() {
    return System.nanoTime();
  }

  /** Returns the message of every rank, by rank. */
  List<byte[]> allGather(byte[] mine, Deadline deadline);

  /**
   * Releases everything. Calls in flight fail, here and on the other ranks. Idempotent, from any
   * thread.
   */
  @Override
  void close();
}
