// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;

/**
 * Gives each token of a mixture of experts to the ranks that have its experts, once to each rank. A
 * received token's place follows from rank and number of the token it is, so it is the same in
 * every run.
 *
 * @param batch the routing
 * @param input this rank's tokens, {@code [tokens][hidden]}
 * @param scales of the input, {@code [tokens][hidden / 128]} floats; null for BFLOAT16
 * @param output the received tokens, {@code [capacity][hidden]}
 * @param outputScales of the output, {@code [capacity][hidden / 128]}; null for BFLOAT16
 */
@Experimental
public record Dispatch(
    ExpertBatch batch,
    DeviceBuffer input,
    DeviceBuffer scales,
    DeviceBuffer output,
    DeviceBuffer outputScales)
    implements RoutedCall {
  /** Refuses null, and scales where there are none. */
  public Dispatch {
    String label = Collective.DISPATCH.label();
    InvalidUsage.requireNonNull(batch, label, "batch");
    boolean hasScales = batch.shape().scaleBytes() > 0;
    if ((scales != null) != hasScales || (outputScales != null) != hasScales) {
      throw InvalidUsage.of(
          "%s of %s with scales=%s outputScales=%s; %s",
          label,
          batch.shape().type(),
          scales,
          outputScales,
          hasScales ? "give both" : "leave them null");
    }
  }

  @Override
  public Collective collective() {
    return Collective.DISPATCH;
  }

  @Override
  public DataType type() {
    return batch.shape().type();
  }

  /** Returns the values of this rank's tokens. */
  @Override
  public long count() {
    return (long) batch.shape().tokens() * batch.shape().hidden();
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return countBytes();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    return (long) batch.shape().capacity() * batch.shape().tokenBytes();
  }

  @Override
  public void checkRouting(Device device, RankTopology topology) {
    int rank = topology.rank();
    ExpertShape shape = batch.shape();
    batch.check(this, device, topology);
    AlgorithmSelector.requireWords(this, rank, "input", input);
    AlgorithmSelector.requireWords(this, rank, "output", output);
    if (scales != null) {
      long bytes = shape.scaleBytes();
      AlgorithmSelector.requireOther(this, device, rank, "scales", scales, shape.tokens() * bytes);
      AlgorithmSelector.requireOther(
          this, device, rank, "output scales", outputScales, shape.capacity() * bytes);
    }
  }

  @Override
  public List<DeviceBuffer> buffers() {
    return batch.with(input, scales, output, outputScales);
  }

  @Override
  public String signature() {
    return collective().label() + " " + batch.shape().signature();
  }

  @Override
  public String toString() {
    return signature();
  }
}
