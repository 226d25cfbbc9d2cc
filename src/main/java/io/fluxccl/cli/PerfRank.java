package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.collective.RankTopology;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;

/**
 * One rank as {@code perf} drives it: two buffers, collectives on their beginnings, and enough of a
 * control network to agree on times. Called from one thread, except for {@link #close()}.
 *
 * <p>Every method that waits ends by its deadline with an error of the FluxCclException tree.
 */
interface PerfRank extends AutoCloseable {
  /** This rank, from 0. */
  int rank();

  /** How many ranks there are. */
  int nRanks();

  /** One line for a person: the device, and what moves its bytes. */
  String device();

  /**
   * Allocates the buffers and readies both sides. Called once, by every rank.
   *
   * @param bytes the size of each buffer, 1 or more
   */
  void prepare(long bytes);

  /** This library. */
  PerfContender library();

  /** Whom it is compared with, if anybody. */
  Optional<PerfContender> peer();

  /**
   * The names of the algorithms that can do something, the one that would be taken first. The same
   * on every rank.
   */
  List<String> algorithms(PerfCase shape, Placement placement);

  /**
   * From now on uses an algorithm for a case's collective wherever it can; empty: chooses by itself
   * again. On all ranks at the same point.
   */
  void prefer(PerfCase shape, Optional<String> algorithm);

  /** Who is where. */
  RankTopology topology();

  /**
   * Copies the remaining bytes of {@code source} into a buffer. No work is in flight.
   *
   * @param buffer which
   * @param offset bytes from the start of the buffer
   * @param source its position is moved to its limit
   */
  void upload(PerfBuffer buffer, long offset, ByteBuffer source);

  /**
   * Fills {@code target} from a buffer. No work is in flight.
   *
   * @param buffer which
   * @param offset bytes from the start of the buffer
   * @param target its position is moved to its limit
   */
  void download(PerfBuffer buffer, long offset, ByteBuffer target);

  /** Returns when every rank has called it. */
  void barrier(Deadline deadline);

  /**
   * Gathers one message of every rank at every rank.
   *
   * @param mine this rank's
   * @param deadline by when
   * @return all, by rank
   */
  List<byte[]> allGather(byte[] mine, Deadline deadline);

  /**
   * Lets go of everything; work in flight fails, here and at the other ranks. From any thread,
   * idempotent.
   */
  @Override
  void close();
}
