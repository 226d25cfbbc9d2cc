// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;
import java.util.stream.Stream;

/**
 * An all-reduce of a matrix, followed by an {@link Epilogue} on each row. The sum over the ranks,
 * in rank order, is rounded once. Every rank gets the epilogue's result for it. The result of a row
 * depends on the row's content alone: not on the other rows, its place among them, the algorithm,
 * or the run.
 *
 * <p>The content of the input is undefined after the call.
 *
 * @param input this rank's rows, contiguous
 * @param rows number of rows
 * @param hidden elements of a row: a multiple of 16 bytes, 64 KiB at most
 * @param type FLOAT16, BFLOAT16 or FLOAT32
 * @param epilogue of each row; the same on every rank
 */
@Experimental
public record FusedAllReduce(
    DeviceBuffer input, long rows, long hidden, DataType type, Epilogue epilogue)
    implements CollectiveCall {
  /** The algorithm of every lane for calls that no family of algorithms supports. */
  public static final String DESCRIPTION =
      SeparateEpilogue.NAME
          + ": fused all-reduces of any size between any ranks; the all-reduce, then a kernel for"
          + " the epilogue";

  /** The types of elements. */
  static final List<DataType> TYPES =
      List.of(DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32);

  /** Bytes of which a row is a multiple, so that threads load and store whole words. */
  public static final int WORD = 16;

  private static final long LONGEST_ROW = 64 << 10;

  /** Refuses null, other types, and rows that no block of threads can hold. */
  public FusedAllReduce {
    String label = Collective.FUSED_ALL_REDUCE.label();
    InvalidUsage.requireNonNull(type, label, "type");
    InvalidUsage.requireNonNull(epilogue, label, "epilogue");
    if (!TYPES.contains(type)) {
      throw InvalidUsage.of("%s type=%s; give one of %s", label, type, TYPES);
    }
    long rowBytes = Collective.FUSED_ALL_REDUCE.multiply(hidden, type.size());
    if (hidden < 1 || rowBytes % WORD != 0 || rowBytes > LONGEST_ROW) {
      throw InvalidUsage.of(
          "%s hidden=%d type=%s; give a multiple of %d, up to %d",
          label, hidden, type, WORD / type.size(), LONGEST_ROW / type.size());
    }
    if (rows < 0 || rows > Integer.MAX_VALUE) {
      throw InvalidUsage.of("%s rows=%d; give 0 to %d", label, rows, Integer.MAX_VALUE);
    }
  }

  @Override
  public Collective collective() {
    return Collective.FUSED_ALL_REDUCE;
  }

  /** Returns null: the outputs are the epilogue's. */
  @Override
  public DeviceBuffer output() {
    return null;
  }

  @Override
  public List<DeviceBuffer> buffers() {
    return Stream.concat(Stream.of(input), epilogue.buffers().stream()).toList();
  }

  @Override
  public long count() {
    return rows * hidden;
  }

  /** Returns the bytes of a row. */
  public long rowBytes() {
    return hidden * type.size();
  }

  @Override
  public long totalBytes(int nRanks) {
    return countBytes();
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return countBytes();
  }

  /** Returns the all-reduce alone, in place. */
  CollectiveCall allReduce() {
    return CollectiveCall.allReduce(input, input, count(), type, ReduceOp.SUM);
  }

  @Override
  public String signature() {
    return Text.of(
        "%s rows=%d hidden=%d type=%s epilogue=%s",
        collective().label(), rows, hidden, type, epilogue.signature());
  }

  @Override
  public String toString() {
    return signature();
  }
}
