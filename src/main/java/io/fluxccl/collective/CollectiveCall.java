package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import java.util.Arrays;
import java.util.stream.LongStream;

/**
 * What one rank asks for: an operation, its buffers, and what all ranks must agree on. Immutable;
 * may be used again and again. Sizes are checked when it is made or enqueued; a buffer that a rank
 * has no use for is null there.
 *
 * <p>Shapes, in elements, for n ranks and a call of {@code count}:
 *
 * <table>
 * <caption>shapes</caption>
 * <tr><th>operation</th><th>input</th><th>output</th><th>in place when</th></tr>
 * <tr><td>all-reduce, reduce, broadcast</td><td>count</td><td>count</td><td>both are the same</td></tr>
 * <tr><td>all-gather, gather</td><td>count</td><td>n x count</td><td>the input is part rank of the output</td></tr>
 * <tr><td>reduce-scatter, scatter</td><td>n x count</td><td>count</td><td>the output is part rank of the input</td></tr>
 * <tr><td>all-to-all</td><td>n x count</td><td>n x count</td><td>both are the same</td></tr>
 * <tr><td>all-to-all-v</td><td>sum of sendCounts</td><td>sum of receiveCounts</td><td>never</td></tr>
 * <tr><td>send-receive</td><td>sendCount</td><td>receiveCount</td><td>never</td></tr>
 * </table>
 *
 * <p>In any other way input and output must not overlap.
 */
public final class CollectiveCall {
  /** In place of a peer: none. */
  public static final int NO_PEER = -1;

  private final Collective collective;
  private final DeviceBuffer input;
  private final DeviceBuffer output;
  private final long count;
  private final long stride;
  private final DataType type;
  private final ReduceOp op;
  private final int root;
  private final int destination;
  private final int source;
  private final long[] sendCounts;
  private final long[] receiveCounts;

  private CollectiveCall(
      Collective collective,
      DeviceBuffer input,
      DeviceBuffer output,
      long count,
      long stride,
      DataType type,
      ReduceOp op,
      int root,
      int destination,
      int source,
      long[] sendCounts,
      long[] receiveCounts) {
    this.collective = collective;
    this.input = input;
    this.output = output;
    this.count = count;
    this.stride = stride;
    this.type = type;
    this.op = op;
    this.root = root;
    this.destination = destination;
    this.source = source;
    this.sendCounts = sendCounts;
    this.receiveCounts = receiveCounts;
    if (count < 0) {
      throw new InvalidUsage(collective.label() + " count=" + count + "; give 0 or more");
    }
    if (op == null && collective.reduces()) {
      throw new InvalidUsage(collective.label() + " op=null; give what it reduces by");
    }
    times(Math.max(count, stride), type.size());
  }

  /** The product of sizes, none below 0. */
  private long times(long size, long n) {
    if (Math.multiplyHigh(size, n) != 0 || size * n < 0) {
      throw tooLarge(collective, count);
    }
    return size * n;
  }

  private static InvalidUsage tooLarge(Collective collective, long count) {
    return new InvalidUsage(
        collective.label() + " count=" + count + ": more bytes than there can be; give less");
  }

  /** What several counts, none below 0, are together. */
  private static long total(Collective collective, long[] counts) {
    long total = 0;
    for (long count : counts) {
      if (total + count < 0) {
        throw tooLarge(collective, count);
      }
      total += count;
    }
    return total;
  }

  private static CollectiveCall of(
      Collective collective,
      DeviceBuffer input,
      DeviceBuffer output,
      long count,
      DataType type,
      ReduceOp op,
      int root) {
    return new CollectiveCall(
        collective, input, output, count, count, type, op, root, NO_PEER, NO_PEER, null, null);
  }

  /** An all-reduce of {@code count} elements. */
  public static CollectiveCall allReduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return of(Collective.ALL_REDUCE, input, output, count, type, op, NO_PEER);
  }

  /** An all-gather to which each rank gives {@code count} elements. */
  public static CollectiveCall allGather(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return of(Collective.ALL_GATHER, input, output, count, type, null, NO_PEER);
  }

  /** A reduce-scatter of which each rank gets {@code count} elements. */
  public static CollectiveCall reduceScatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return of(Collective.REDUCE_SCATTER, input, output, count, type, op, NO_PEER);
  }

  /** A broadcast of {@code count} elements; {@code input} matters on the root only. */
  public static CollectiveCall broadcast(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return of(Collective.BROADCAST, input, output, count, type, null, root);
  }

  /** A reduce of {@code count} elements; {@code output} matters on the root only. */
  public static CollectiveCall reduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op, int root) {
    return of(Collective.REDUCE, input, output, count, type, op, root);
  }

  /** An all-to-all in which each rank gives each rank {@code count} elements. */
  public static CollectiveCall allToAll(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return of(Collective.ALL_TO_ALL, input, output, count, type, null, NO_PEER);
  }

  /**
   * An all-to-all of parts of any sizes, which lie one behind the other in rank order.
   *
   * @param input this rank's parts
   * @param sendCounts elements for each rank
   * @param output where the others' parts go
   * @param receiveCounts elements from each rank: what that rank gives as its send count for this
   * @param type of the elements
   */
  public static CollectiveCall allToAllv(
      DeviceBuffer input,
      long[] sendCounts,
      DeviceBuffer output,
      long[] receiveCounts,
      DataType type) {
    for (long[] counts : new long[][] {sendCounts, receiveCounts}) {
      if (counts.length != sendCounts.length || LongStream.of(counts).anyMatch(c -> c < 0)) {
        throw new InvalidUsage(
            "all-to-all-v sendCounts="
                + Arrays.toString(sendCounts)
                + " receiveCounts="
                + Arrays.toString(receiveCounts)
                + "; give one count, 0 or more, for each rank");
      }
    }
    long sends = total(Collective.ALL_TO_ALL_V, sendCounts);
    long receives = total(Collective.ALL_TO_ALL_V, receiveCounts);
    if (receives > Long.MAX_VALUE / type.size()) {
      throw tooLarge(Collective.ALL_TO_ALL_V, receives);
    }
    return new CollectiveCall(
        Collective.ALL_TO_ALL_V,
        input,
        output,
        sends,
        0,
        type,
        null,
        NO_PEER,
        NO_PEER,
        NO_PEER,
        sendCounts.clone(),
        receiveCounts.clone());
  }

  /** A gather to which each rank gives {@code count}; {@code output} matters on the root only. */
  public static CollectiveCall gather(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return of(Collective.GATHER, input, output, count, type, null, root);
  }

  /** A scatter of which each rank gets {@code count}; {@code input} matters on the root only. */
  public static CollectiveCall scatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return of(Collective.SCATTER, input, output, count, type, null, root);
  }

  /**
   * A send to one rank and a receive from another, or the same, at once. Either may be left out by
   * {@link #NO_PEER}, a count of 0 and no buffer. A rank that sends to itself receives as many from
   * itself by the same call.
   *
   * @param input what to send
   * @param sendCount elements
   * @param destination to whom
   * @param output where to put what comes
   * @param receiveCount elements: what the source sends to this rank
   * @param source from whom
   * @param type of the elements
   */
  public static CollectiveCall sendReceive(
      DeviceBuffer input,
      long sendCount,
      int destination,
      DeviceBuffer output,
      long receiveCount,
      int source,
      DataType type) {
    if (sendCount < 0 || receiveCount < 0) {
      throw new InvalidUsage(
          "send-receive sendCount=" + sendCount + " receiveCount=" + receiveCount);
    }
    return new CollectiveCall(
        Collective.SEND_RECEIVE,
        input,
        output,
        Math.max(sendCount, receiveCount),
        0,
        type,
        null,
        NO_PEER,
        destination,
        source,
        new long[] {sendCount},
        new long[] {receiveCount});
  }

  /** A barrier. */
  public static CollectiveCall barrier() {
    return of(Collective.BARRIER, null, null, 0, DataType.UINT8, null, NO_PEER);
  }

  /** The operation. */
  public Collective collective() {
    return collective;
  }

  /** This rank's input, or null. */
  public DeviceBuffer input() {
    return input;
  }

  /** This rank's output, or null. */
  public DeviceBuffer output() {
    return output;
  }

  /**
   * Elements, as the table of shapes says. Of {@link Collective#ALL_TO_ALL_V} and {@link
   * Collective#SEND_RECEIVE} it may differ between ranks.
   */
  public long count() {
    return count;
  }

  /** The elements' type. */
  public DataType type() {
    return type;
  }

  /** How values are combined; null where none are. */
  public ReduceOp op() {
    return op;
  }

  /** The root, or {@link #NO_PEER}. */
  public int root() {
    return root;
  }

  /** To whom a {@link Collective#SEND_RECEIVE} sends, or {@link #NO_PEER}. */
  public int destination() {
    return destination;
  }

  /** From whom a {@link Collective#SEND_RECEIVE} receives, or {@link #NO_PEER}. */
  public int source() {
    return source;
  }

  /** {@link #count()} in bytes. */
  public long countBytes() {
    return count * type.size();
  }

  /**
   * Bytes from one rank's share of a buffer to the next one's, where a buffer has a share for each
   * rank: {@link #countBytes()}, or more if this {@linkplain #isPartOfShares() is a part}.
   */
  public long strideBytes() {
    return stride * type.size();
  }

  /** Whether the shares of a buffer don't lie one behind the other; the same on every rank. */
  public boolean isPartOfShares() {
    return stride > count;
  }

  /**
   * The same with a range of every share only, and of what is no share.
   *
   * @param offset of the range's first element
   * @param elements how many, 1 or more
   */
  CollectiveCall part(long offset, long elements) {
    boolean manyIn =
        switch (collective) {
          case REDUCE_SCATTER, ALL_TO_ALL, SCATTER -> true;
          default -> false;
        };
    boolean manyOut =
        switch (collective) {
          case ALL_GATHER, ALL_TO_ALL, GATHER -> true;
          default -> false;
        };
    DeviceBuffer from = range(input, offset, elements, manyIn);
    return new CollectiveCall(
        collective,
        from,
        output == input && manyIn == manyOut ? from : range(output, offset, elements, manyOut),
        elements,
        manyIn || manyOut ? stride : elements,
        type,
        op,
        root,
        destination,
        source,
        sendCounts,
        receiveCounts);
  }

  /** From there on; null if a rank has no use for the buffer, which may then be too small. */
  private DeviceBuffer range(DeviceBuffer buffer, long offset, long elements, boolean many) {
    long begin = offset * type.size();
    long length = elements * type.size();
    if (buffer == null || begin + length > buffer.size()) {
      return null;
    }
    return buffer.slice(begin, many ? buffer.size() - begin : length);
  }

  /**
   * The bytes by which algorithms are chosen, the same on every rank: the larger of input and
   * output. 0 where ranks can't know each other's sizes.
   *
   * @param nRanks how many ranks
   */
  public long totalBytes(int nRanks) {
    return switch (collective) {
      case ALL_REDUCE, BROADCAST, REDUCE -> countBytes();
      case ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER -> times(countBytes(), nRanks);
      case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> 0;
    };
  }

  /** From the first share's beginning to the last one's end. */
  private long sharesBytes(int nRanks) {
    return times(strideBytes(), nRanks) - strideBytes() + countBytes();
  }

  /** Bytes of this rank's input. */
  public long inputBytes(int rank, int nRanks) {
    return switch (collective) {
      case ALL_REDUCE, REDUCE, ALL_GATHER, GATHER -> countBytes();
      case BROADCAST -> rank == root ? countBytes() : 0;
      case SCATTER -> rank == root ? sharesBytes(nRanks) : 0;
      case REDUCE_SCATTER, ALL_TO_ALL -> sharesBytes(nRanks);
      case ALL_TO_ALL_V, SEND_RECEIVE -> LongStream.of(sendCounts).sum() * type.size();
      case BARRIER -> 0;
    };
  }

  /** Bytes of this rank's output. */
  public long outputBytes(int rank, int nRanks) {
    return switch (collective) {
      case ALL_REDUCE, BROADCAST, REDUCE_SCATTER, SCATTER -> countBytes();
      case REDUCE -> rank == root ? countBytes() : 0;
      case GATHER -> rank == root ? sharesBytes(nRanks) : 0;
      case ALL_GATHER, ALL_TO_ALL -> sharesBytes(nRanks);
      case ALL_TO_ALL_V, SEND_RECEIVE -> LongStream.of(receiveCounts).sum() * type.size();
      case BARRIER -> 0;
    };
  }

  /**
   * Where in this rank's input the bytes for a peer begin. Of collectives that reduce: the peer's
   * part of a reduce-scatter, everything for the root of a reduce.
   */
  public long sendOffset(int peer) {
    return switch (collective) {
      case REDUCE_SCATTER, ALL_TO_ALL, SCATTER -> peer * strideBytes();
      case ALL_TO_ALL_V -> sum(sendCounts, peer);
      default -> 0;
    };
  }

  /** How many bytes of the input are for a peer; may be this rank itself. */
  public long sendBytes(int rank, int peer) {
    return switch (collective) {
      case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL -> countBytes();
      case BROADCAST, SCATTER -> rank == root ? countBytes() : 0;
      case REDUCE, GATHER -> peer == root ? countBytes() : 0;
      case ALL_TO_ALL_V -> sendCounts[peer] * type.size();
      case SEND_RECEIVE -> peer == destination ? sendCounts[0] * type.size() : 0;
      case BARRIER -> 0;
    };
  }

  /** Where in this rank's output the bytes of a peer begin, if they are not combined. */
  public long receiveOffset(int peer) {
    return switch (collective) {
      case ALL_GATHER, ALL_TO_ALL, GATHER -> peer * strideBytes();
      case ALL_TO_ALL_V -> sum(receiveCounts, peer);
      default -> 0;
    };
  }

  /** How many bytes this rank gets from a peer; may be this rank itself. */
  public long receiveBytes(int rank, int peer) {
    return switch (collective) {
      case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL -> countBytes();
      case BROADCAST, SCATTER -> peer == root ? countBytes() : 0;
      case REDUCE, GATHER -> rank == root ? countBytes() : 0;
      case ALL_TO_ALL_V -> receiveCounts[peer] * type.size();
      case SEND_RECEIVE -> peer == source ? receiveCounts[0] * type.size() : 0;
      case BARRIER -> 0;
    };
  }

  /** Of how many ranks the counts tell; that of an all-to-all-v must be all. */
  int countedRanks() {
    return sendCounts.length;
  }

  private long sum(long[] counts, int before) {
    long sum = 0;
    for (int i = 0; i < before; i++) {
      sum += counts[i];
    }
    return sum * type.size();
  }

  /** Whether this rank's input and output, as far as it uses them, share memory. */
  public boolean isInPlace(int rank, int nRanks) {
    long in = inputBytes(rank, nRanks);
    long out = outputBytes(rank, nRanks);
    return in > 0
        && out > 0
        && input != null
        && output != null
        && input.address() < output.address() + out
        && output.address() < input.address() + in;
  }

  /** What must be the same on every rank, in words. */
  public String signature() {
    StringBuilder text = new StringBuilder(collective.label());
    if (collective.hasRoot()) {
      text.append(" root=").append(root);
    }
    if (collective != Collective.ALL_TO_ALL_V && collective != Collective.SEND_RECEIVE) {
      text.append(" count=").append(count);
    }
    if (isPartOfShares()) {
      text.append(" of ").append(stride);
    }
    text.append(" type=").append(type);
    if (op != null) {
      text.append(" op=").append(op);
    }
    return text.toString();
  }

  /** For a person. */
  @Override
  public String toString() {
    String text = signature();
    if (collective == Collective.SEND_RECEIVE) {
      text += " to=" + destination + " from=" + source;
    }
    return text;
  }
}
