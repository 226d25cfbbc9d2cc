// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;

/**
 * A call to which every rank gives the same count, so that ranks know each other's sizes. Input and
 * output have {@code count} elements, or a share of {@code count} elements for each rank. Shares
 * begin {@code stride} elements apart: {@code count}, or more if the call covers a part of each
 * share.
 */
public sealed interface UniformCall extends CollectiveCall {
  /** Returns the elements from one rank's share to the next one's. */
  default long stride() {
    return count();
  }

  /** Returns this call with other buffers and counts. */
  UniformCall with(DeviceBuffer input, DeviceBuffer output, long count, long stride);

  @Override
  default long strideBytes() {
    return stride() * type().size();
  }

  @Override
  default boolean isPartOfShares() {
    return stride() > count();
  }

  @Override
  default long totalBytes(int nRanks) {
    boolean hasShares = collective().hasInputShares() || collective().hasOutputShares();
    return hasShares ? collective().multiply(countBytes(), nRanks) : countBytes();
  }

  /** Returns the bytes from the first share's begin to the last one's end. */
  private long sharesBytes(int nRanks) {
    return collective().multiply(strideBytes(), nRanks) - strideBytes() + countBytes();
  }

  @Override
  default long inputBytes(int rank, int nRanks) {
    if (collective().hasInputOnRootOnly() && rank != root()) {
      return 0;
    }
    return collective().hasInputShares() ? sharesBytes(nRanks) : countBytes();
  }

  @Override
  default long outputBytes(int rank, int nRanks) {
    if (collective().hasOutputOnRootOnly() && rank != root()) {
      return 0;
    }
    return collective().hasOutputShares() ? sharesBytes(nRanks) : countBytes();
  }

  @Override
  default long sendOffset(int peer) {
    return collective().hasInputShares() ? peer * strideBytes() : 0;
  }

  @Override
  default long sendBytes(int rank, int peer) {
    return moves(rank, peer) ? countBytes() : 0;
  }

  @Override
  default long receiveOffset(int peer) {
    return collective().hasOutputShares() ? peer * strideBytes() : 0;
  }

  @Override
  default long receiveBytes(int rank, int peer) {
    return moves(peer, rank) ? countBytes() : 0;
  }

  /** Returns whether bytes go from a rank to a rank. */
  private boolean moves(int from, int to) {
    return (!collective().hasInputOnRootOnly() || from == root())
        && (!collective().hasOutputOnRootOnly() || to == root());
  }

  /**
   * Returns this call for a range of every share, and of a buffer without shares.
   *
   * @param offset of the range's first element
   * @param elements how many, 1 or more
   */
  default UniformCall part(long offset, long elements) {
    boolean manyIn = collective().hasInputShares();
    boolean manyOut = collective().hasOutputShares();
    DeviceBuffer from = range(input(), offset, elements, manyIn);
    DeviceBuffer to =
        output() == input() && manyIn == manyOut
            ? from
            : range(output(), offset, elements, manyOut);
    return with(from, to, elements, manyIn || manyOut ? stride() : elements);
  }

  /** Returns null for a buffer that this rank does not use, which may be too small. */
  private DeviceBuffer range(DeviceBuffer buffer, long offset, long elements, boolean isMany) {
    long begin = offset * type().size();
    long length = elements * type().size();
    if (buffer == null || begin + length > buffer.size()) {
      return null;
    }
    return buffer.slice(begin, isMany ? buffer.size() - begin : length);
  }

  @Override
  default String signature() {
    StringBuilder text = new StringBuilder(collective().label());
    if (collective().hasRoot()) {
      text.append(" root=").append(root());
    }
    text.append(" count=").append(count());
    if (isPartOfShares()) {
      text.append(" of ").append(stride());
    }
    text.append(" type=").append(type());
    if (op() != null) {
      text.append(" op=").append(op());
    }
    return text.toString();
  }

  private static void require(Collective collective, long count, long stride, DataType type) {
    InvalidUsage.requireNonNull(type, collective.label(), "type");
    if (count < 0) {
      throw InvalidUsage.of("%s count=%d; give 0 or more", collective.label(), count);
    }
    collective.multiply(Math.max(count, stride), type.size());
  }

  private static void require(Collective collective, ReduceOp op) {
    InvalidUsage.requireNonNull(op, collective.label(), "op");
  }

  /** An all-reduce: every rank gets the combination of all inputs. */
  record AllReduce(DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op)
      implements UniformCall {
    /** Refuses values without an operation, and a count below 0 or too large. */
    public AllReduce {
      require(Collective.ALL_REDUCE, count, count, type);
      require(Collective.ALL_REDUCE, op);
    }

    @Override
    public Collective collective() {
      return Collective.ALL_REDUCE;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new AllReduce(in, out, elements, type, op);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** An all-gather: every rank gets all inputs. */
  record AllGather(DeviceBuffer input, DeviceBuffer output, long count, long stride, DataType type)
      implements UniformCall {
    /** Refuses a count below 0 or too large. */
    public AllGather {
      require(Collective.ALL_GATHER, count, stride, type);
    }

    @Override
    public Collective collective() {
      return Collective.ALL_GATHER;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new AllGather(in, out, elements, apart, type);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** A reduce-scatter: each rank gets its share of the combination of all inputs. */
  record ReduceScatter(
      DeviceBuffer input, DeviceBuffer output, long count, long stride, DataType type, ReduceOp op)
      implements UniformCall {
    /** Refuses values without an operation, and a count below 0 or too large. */
    public ReduceScatter {
      require(Collective.REDUCE_SCATTER, count, stride, type);
      require(Collective.REDUCE_SCATTER, op);
    }

    @Override
    public Collective collective() {
      return Collective.REDUCE_SCATTER;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new ReduceScatter(in, out, elements, apart, type, op);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** A broadcast: every rank gets the root's input. */
  record Broadcast(DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root)
      implements UniformCall {
    /** Refuses a count below 0 or too large. */
    public Broadcast {
      require(Collective.BROADCAST, count, count, type);
    }

    @Override
    public Collective collective() {
      return Collective.BROADCAST;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new Broadcast(in, out, elements, type, root);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** A reduce: the root gets the combination of all inputs. */
  record Reduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op, int root)
      implements UniformCall {
    /** Refuses values without an operation, and a count below 0 or too large. */
    public Reduce {
      require(Collective.REDUCE, count, count, type);
      require(Collective.REDUCE, op);
    }

    @Override
    public Collective collective() {
      return Collective.REDUCE;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new Reduce(in, out, elements, type, op, root);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** An all-to-all: share j of rank i's input becomes share i of rank j's output. */
  record AllToAll(DeviceBuffer input, DeviceBuffer output, long count, long stride, DataType type)
      implements UniformCall {
    /** Refuses a count below 0 or too large. */
    public AllToAll {
      require(Collective.ALL_TO_ALL, count, stride, type);
    }

    @Override
    public Collective collective() {
      return Collective.ALL_TO_ALL;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new AllToAll(in, out, elements, apart, type);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** A gather: the root gets all inputs. */
  record Gather(
      DeviceBuffer input, DeviceBuffer output, long count, long stride, DataType type, int root)
      implements UniformCall {
    /** Refuses a count below 0 or too large. */
    public Gather {
      require(Collective.GATHER, count, stride, type);
    }

    @Override
    public Collective collective() {
      return Collective.GATHER;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new Gather(in, out, elements, apart, type, root);
    }

    @Override
    public String toString() {
      return signature();
    }
  }

  /** A scatter: each rank gets its share of the root's input. */
  record Scatter(
      DeviceBuffer input, DeviceBuffer output, long count, long stride, DataType type, int root)
      implements UniformCall {
    /** Refuses a count below 0 or too large. */
    public Scatter {
      require(Collective.SCATTER, count, stride, type);
    }

    @Override
    public Collective collective() {
      return Collective.SCATTER;
    }

    @Override
    public UniformCall with(DeviceBuffer in, DeviceBuffer out, long elements, long apart) {
      return new Scatter(in, out, elements, apart, type, root);
    }

    @Override
    public String toString() {
      return signature();
    }
  }
}
