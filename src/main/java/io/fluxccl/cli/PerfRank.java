package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * One rank as {@code perf} drives it: a buffer, an all-reduce in place on its beginning, and enough
 * of a control network to agree on times. Called from one thread, except for {@link #close()}.
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
   * Allocates the buffer and sets up what an all-reduce of up to so many bytes needs. Called once,
   * by every rank.
   *
   * @param maxBytes the size of the buffer, 1 or more
   */
  void prepare(long maxBytes);

  /**
   * Copies the remaining bytes of {@code source} into the buffer. No work is in flight.
   *
   * @param offset bytes from the start of the buffer
   * @param source its position is moved to its limit
   */
  void upload(long offset, ByteBuffer source);

  /**
   * Fills {@code target} from the buffer. No work is in flight.
   *
   * @param offset bytes from the start of the buffer
   * @param target its position is moved to its limit
   */
  void download(long offset, ByteBuffer target);

  /**
   * Enqueues an all-reduce in place of the buffer's first {@code count} elements, and returns
   * without waiting for it. The buffer may be longer than that, and up to tens of thousands of
   * calls may come before the next {@link #completion}.
   *
   * @param count elements, 1 or more
   * @param type of the elements
   * @param op how to reduce
   */
  void enqueueAllReduce(long count, DataType type, ReduceOp op);

  /**
   * A future of everything enqueued so far.
   *
   * @param limit how long it may take; then it fails and so does the job, naming who is late
   */
  CompletableFuture<Void> completion(Duration limit);

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
