// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;

/**
 * Returns to each token of a mixture of experts the sum of what its experts give, after a {@link
 * Dispatch} of the same batch. All values are BFLOAT16. Each rank with experts of a token gives one
 * vector for it; these are added as floats in rank order, and rounded once. So the result has the
 * same bits in every run, whatever the other tokens are. A token without an expert gets zeros.
 *
 * @param batch the routing, as dispatch left it
 * @param input without rows: {@code [capacity][hidden]}, for each received token the weighted sum
 *     of what this rank's experts give. With rows: what each expert gives, in any order
 * @param rows the row of the input for each received token and each of its experts, integers of 4
 *     bytes, {@code [capacity][topK]}; read where the expert is one of this rank's; -1 leaves it
 *     out. Combine then adds the rows, each times its weight in {@link
 *     ExpertBatch#receivedWeights}, as floats, in the order of the token's experts, and rounds the
 *     sum to BFLOAT16 before it sends it. Null: without rows
 * @param output the results for this rank's tokens, {@code [tokens][hidden]}
 */
@Experimental
public record Combine(ExpertBatch batch, DeviceBuffer input, DeviceBuffer rows, DeviceBuffer output)
    implements RoutedCall {
  /** Refuses null for the batch. */
  public Combine {
    InvalidUsage.requireNonNull(batch, Collective.COMBINE.label(), "batch");
  }

  @Override
  public Collective collective() {
    return Collective.COMBINE;
  }

  @Override
  public DataType type() {
    return DataType.BFLOAT16;
  }

  /** Returns the values of this rank's tokens. */
  @Override
  public long count() {
    return (long) batch.shape().tokens() * batch.shape().hidden();
  }

  /** Returns the number of rows of the input. */
  public int inputRows() {
    return rows == null
        ? batch.shape().capacity()
        : (int) Math.min(Integer.MAX_VALUE, input.size() / batch.shape().combinedBytes());
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return rows == null || input == null
        ? (long) batch.shape().capacity() * batch.shape().combinedBytes()
        : input.size();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    return countBytes();
  }

  @Override
  public void checkRouting(Device device, RankTopology topology) {
    batch.check(this, device, topology);
    AlgorithmSelector.requireWords(this, topology.rank(), "input", input);
    AlgorithmSelector.requireWords(this, topology.rank(), "output", output);
    if (rows != null) {
      AlgorithmSelector.requireOther(
          this, device, topology.rank(), "rows", rows, batch.shape().receivedRoutingBytes());
    }
  }

  @Override
  public List<DeviceBuffer> buffers() {
    return batch.with(input, rows, output);
  }

  @Override
  public String signature() {
    return Text.of(
        "%s %s%s", collective().label(), batch.shape().signature(), rows == null ? "" : " of rows");
  }

  @Override
  public String toString() {
    return signature();
  }
}
