package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;

/**
 * A call to which every rank gives the same count, so that ranks know each other's sizes. Input and
 * output have {@code count} elements, or a share of {@code count} elements for each rank.
 *
 * @param collective the operation, which is {@linkplain Collective#isUniform uniform}
 * @param input this rank's input, or null
 * @param output this rank's output, or null
 * @param count elements, 0 or more
 * @param stride elements from one rank's share to the next one's: {@code count}, or more if the
 *     call covers a part of each share
 * @param type of the elements
 * @param op how values are combined; null unless the collective reduces
 * @param root the root, or {@link #NO_PEER}
 */
public record UniformCall(
    Collective collective,
    DeviceBuffer input,
    DeviceBuffer output,
    long count,
    long stride,
    DataType type,
    ReduceOp op,
    int root)
    implements CollectiveCall {
  /** Refuses other collectives, a count below 0 or too large, and values without an operation. */
  public UniformCall {
    if (!collective.isUniform()) {
      throw InvalidUsage.of("%s is no uniform call; use CollectiveCall", collective.label());
    }
    if (count < 0) {
      throw InvalidUsage.of("%s count=%d; give 0 or more", collective.label(), count);
    }
    CallChecks.multiply(collective, Math.max(count, stride), type.size());
    if (collective.reduces() && op == null) {
      throw InvalidUsage.of(
          "%s op=null; give the operation that combines values", collective.label());
    }
  }

  @Override
  public long strideBytes() {
    return stride * type.size();
  }

  @Override
  public boolean isPartOfShares() {
    return stride > count;
  }

  @Override
  public long totalBytes(int nRanks) {
    boolean hasShares = collective.hasInputShares() || collective.hasOutputShares();
    return hasShares ? CallChecks.multiply(collective, countBytes(), nRanks) : countBytes();
  }

  /** Returns the bytes from the first share's begin to the last one's end. */
  private long sharesBytes(int nRanks) {
    return CallChecks.multiply(collective, strideBytes(), nRanks) - strideBytes() + countBytes();
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    if (collective.hasInputOnRootOnly() && rank != root) {
      return 0;
    }
    return collective.hasInputShares() ? sharesBytes(nRanks) : countBytes();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    if (collective.hasOutputOnRootOnly() && rank != root) {
      return 0;
    }
    return collective.hasOutputShares() ? sharesBytes(nRanks) : countBytes();
  }

  @Override
  public long sendOffset(int peer) {
    return collective.hasInputShares() ? peer * strideBytes() : 0;
  }

  @Override
  public long sendBytes(int rank, int peer) {
    return moves(rank, peer) ? countBytes() : 0;
  }

  @Override
  public long receiveOffset(int peer) {
    return collective.hasOutputShares() ? peer * strideBytes() : 0;
  }

  @Override
  public long receiveBytes(int rank, int peer) {
    return moves(peer, rank) ? countBytes() : 0;
  }

  /** Returns whether bytes go from a rank to a rank. */
  private boolean moves(int from, int to) {
    return (!collective.hasInputOnRootOnly() || from == root)
        && (!collective.hasOutputOnRootOnly() || to == root);
  }

  /**
   * Returns this call for a range of every share, and of a buffer without shares.
   *
   * @param offset of the range's first element
   * @param elements how many, 1 or more
   */
  UniformCall part(long offset, long elements) {
    boolean manyIn = collective.hasInputShares();
    boolean manyOut = collective.hasOutputShares();
    DeviceBuffer from = range(input, offset, elements, manyIn);
    DeviceBuffer to =
        output == input && manyIn == manyOut ? from : range(output, offset, elements, manyOut);
    long apart = manyIn || manyOut ? stride : elements;
    return new UniformCall(collective, from, to, elements, apart, type, op, root);
  }

  /** Returns null for a buffer that this rank does not use, which may be too small. */
  private DeviceBuffer range(DeviceBuffer buffer, long offset, long elements, boolean isMany) {
    long begin = offset * type.size();
    long length = elements * type.size();
    if (buffer == null || begin + length > buffer.size()) {
      return null;
    }
    return buffer.slice(begin, isMany ? buffer.size() - begin : length);
  }

  @Override
  public String signature() {
    StringBuilder text = new StringBuilder(collective.label());
    if (collective.hasRoot()) {
      text.append(" root=").append(root);
    }
    text.append(" count=").append(count);
    if (isPartOfShares()) {
      text.append(" of ").append(stride);
    }
    text.append(" type=").append(type);
    if (op != null) {
      text.append(" op=").append(op);
    }
    return text.toString();
  }

  @Override
  public String toString() {
    return signature();
  }
}
