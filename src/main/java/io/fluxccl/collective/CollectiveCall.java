// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * One rank's part of a collective: the operation, this rank's buffers, and the parameters that must
 * be equal on all ranks. Immutable and reusable. Counts are checked when a call is made, buffers
 * when it is enqueued. A buffer that this rank does not use is null.
 *
 * <p>Shapes, in elements, for n ranks and a call of {@code count}:
 *
 * <table>
 * <caption>shapes</caption>
 * <tr><th>operation</th><th>input</th><th>output</th><th>in place when</th></tr>
 * <tr><td>all-reduce, reduce, broadcast</td><td>count</td><td>count</td><td>both are the same</td></tr>
 * <tr><td>all-gather, gather</td><td>count</td><td>n x count</td><td>the input is share rank of the output</td></tr>
 * <tr><td>reduce-scatter, scatter</td><td>n x count</td><td>count</td><td>the output is share rank of the input</td></tr>
 * <tr><td>all-to-all</td><td>n x count</td><td>n x count</td><td>both are the same</td></tr>
 * <tr><td>fused all-reduce</td><td>rows x hidden</td><td>{@link Epilogue}</td><td>as that says</td></tr>
 * <tr><td>all-to-all-v</td><td>sum of sendCounts</td><td>sum of receiveCounts</td><td>never</td></tr>
 * <tr><td>all-to-all-v, counts on the device</td><td>any</td><td>any</td><td>never</td></tr>
 * <tr><td>send-receive</td><td>sendCount</td><td>receiveCount</td><td>never</td></tr>
 * </table>
 *
 * <p>Otherwise input and output must not overlap.
 */
public sealed interface CollectiveCall
    permits UniformCall, FusedAllReduce, AllToAllV, SendReceive, Barrier, RoutedCall {
  /** The absent peer or root. */
  int NO_PEER = -1;

  /** Returns the operation. */
  Collective collective();

  /** Returns this rank's input, or null. */
  DeviceBuffer input();

  /** Returns this rank's output, or null. */
  DeviceBuffer output();

  /** Returns all buffers of this rank that the call uses. */
  default List<DeviceBuffer> buffers() {
    return Stream.of(input(), output()).filter(Objects::nonNull).toList();
  }

  /** Returns the address of this rank's input, or 0. */
  default long inputAddress() {
    return input() == null ? 0 : input().address();
  }

  /** Returns the address of this rank's output, or 0. */
  default long outputAddress() {
    return output() == null ? 0 : output().address();
  }

  /**
   * Returns the number of elements, as in the table of shapes. It may differ between the ranks of
   * {@link AllToAllV} and {@link SendReceive}.
   */
  long count();

  /** Returns the elements' type. */
  DataType type();

  /** Returns how values are combined; null unless the {@linkplain Collective#reduces reduces}. */
  default ReduceOp op() {
    return null;
  }

  /** Returns the root, or {@link #NO_PEER}. */
  default int root() {
    return NO_PEER;
  }

  /** Returns the rank to which a {@link SendReceive} sends, or {@link #NO_PEER}. */
  default int destination() {
    return NO_PEER;
  }

  /** Returns the rank from which a {@link SendReceive} receives, or {@link #NO_PEER}. */
  default int source() {
    return NO_PEER;
  }

  /** Returns {@link #count()} in bytes. */
  default long countBytes() {
    return count() * type().size();
  }

  /**
   * Returns the bytes from one rank's share of a buffer to the next one's: {@link #countBytes()},
   * or more if this call {@linkplain #isPartOfShares covers a part of each share}. 0 without equal
   * shares.
   */
  default long strideBytes() {
    return 0;
  }

  /** Returns whether a buffer's shares have gaps between them; the same on every rank. */
  default boolean isPartOfShares() {
    return false;
  }

  /**
   * Returns the bytes by which algorithms are chosen, the same on every rank: the larger of input
   * and output. 0 if ranks don't know each other's sizes.
   *
   * @param nRanks how many ranks
   */
  default long totalBytes(int nRanks) {
    return 0;
  }

  /** Returns the bytes of this rank's input. */
  default long inputBytes(int rank, int nRanks) {
    return 0;
  }

  /** Returns the bytes of this rank's output. */
  default long outputBytes(int rank, int nRanks) {
    return 0;
  }

  /**
   * Returns the offset of a peer's bytes in this rank's input. If values are combined: of the
   * peer's share in a reduce-scatter, of the whole input in a reduce.
   */
  default long sendOffset(int peer) {
    return 0;
  }

  /** Returns the bytes of the input that go to a peer, which may be this rank itself. */
  default long sendBytes(int rank, int peer) {
    return 0;
  }

  /** Returns the offset of a peer's bytes in this rank's output, unless values are combined. */
  default long receiveOffset(int peer) {
    return 0;
  }

  /** Returns the bytes that this rank gets from a peer, which may be this rank itself. */
  default long receiveBytes(int rank, int peer) {
    return 0;
  }

  /** Returns whether this rank's input and output, as far as it uses them, share memory. */
  default boolean isInPlace(int rank, int nRanks) {
    long in = inputBytes(rank, nRanks);
    long out = outputBytes(rank, nRanks);
    return in > 0
        && out > 0
        && input() != null
        && output() != null
        && input().address() < output().address() + out
        && output().address() < input().address() + in;
  }

  /** Returns a text of what must be the same on every rank. */
  default String signature() {
    return Text.of("%s type=%s", collective().label(), type());
  }

  /** Returns an all-reduce of {@code count} elements. */
  static CollectiveCall allReduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return new UniformCall.AllReduce(input, output, count, type, op);
  }

  /** Returns an all-reduce of a matrix, with an epilogue on each row. */
  static CollectiveCall fusedAllReduce(
      DeviceBuffer input, long rows, long hidden, DataType type, Epilogue epilogue) {
    return new FusedAllReduce(input, rows, hidden, type, epilogue);
  }

  /** Returns an all-gather to which each rank gives {@code count} elements. */
  static CollectiveCall allGather(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return new UniformCall.AllGather(input, output, count, count, type);
  }

  /** Returns a reduce-scatter of which each rank gets {@code count} elements. */
  static CollectiveCall reduceScatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op) {
    return new UniformCall.ReduceScatter(input, output, count, count, type, op);
  }

  /** Returns a broadcast of {@code count} elements; only the root uses {@code input}. */
  static CollectiveCall broadcast(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return new UniformCall.Broadcast(input, output, count, type, root);
  }

  /** Returns a reduce of {@code count} elements; only the root uses {@code output}. */
  static CollectiveCall reduce(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, ReduceOp op, int root) {
    return new UniformCall.Reduce(input, output, count, type, op, root);
  }

  /** Returns an all-to-all in which each rank gives each rank {@code count} elements. */
  static CollectiveCall allToAll(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type) {
    return new UniformCall.AllToAll(input, output, count, count, type);
  }

  /**
   * Returns an all-to-all with shares of any sizes, contiguous in rank order.
   *
   * @param input this rank's shares
   * @param sendCounts elements for each rank
   * @param output for the shares of all ranks
   * @param receiveCounts elements from each rank: that rank's send count for this rank
   * @param type of the elements
   */
  static CollectiveCall allToAllv(
      DeviceBuffer input,
      long[] sendCounts,
      DeviceBuffer output,
      long[] receiveCounts,
      DataType type) {
    return new AllToAllV(input, sendCounts, output, receiveCounts, type);
  }

  /**
   * Returns an all-to-all with shares of any sizes, whose counts lie on the device; {@link
   * DeviceAllToAllV}.
   */
  static CollectiveCall allToAllv(
      DeviceBuffer input,
      DeviceBuffer output,
      DeviceAllToAllV.Counts counts,
      long most,
      DataType type) {
    return new DeviceAllToAllV(input, output, counts, most, type);
  }

  /** Returns a gather to which each rank gives {@code count}; only the root uses the output. */
  static CollectiveCall gather(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return new UniformCall.Gather(input, output, count, count, type, root);
  }

  /** Returns a scatter of which each rank gets {@code count}; only the root uses the input. */
  static CollectiveCall scatter(
      DeviceBuffer input, DeviceBuffer output, long count, DataType type, int root) {
    return new UniformCall.Scatter(input, output, count, count, type, root);
  }

  /**
   * Returns a send to one rank and a receive from another, or the same, at once. Leave one of them
   * out by {@link #NO_PEER}, a count of 0 and no buffer. A rank that sends to itself receives as
   * many elements from itself by the same call.
   *
   * @param input what to send
   * @param sendCount elements
   * @param destination the rank that receives
   * @param output for the elements received
   * @param receiveCount elements: the source's send count
   * @param source the rank that sends
   * @param type of the elements
   */
  static CollectiveCall sendReceive(
      DeviceBuffer input,
      long sendCount,
      int destination,
      DeviceBuffer output,
      long receiveCount,
      int source,
      DataType type) {
    return new SendReceive(input, sendCount, destination, output, receiveCount, source, type);
  }

  /** Returns a barrier. */
  static CollectiveCall barrier() {
    return new Barrier();
  }
}
