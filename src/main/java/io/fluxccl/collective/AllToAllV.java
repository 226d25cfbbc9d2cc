// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import java.util.Arrays;
import java.util.stream.LongStream;

/** An all-to-all with shares of any sizes. */
public record AllToAllV(
    DeviceBuffer input, long[] sendCounts, DeviceBuffer output, long[] receiveCounts, DataType type)
    implements CollectiveCall {
  /** Refuses null, counts below 0 or too large, and two different numbers of ranks. */
  public AllToAllV {
    String label = Collective.ALL_TO_ALL_V.label();
    InvalidUsage.requireNonNull(sendCounts, label, "sendCounts");
    InvalidUsage.requireNonNull(receiveCounts, label, "receiveCounts");
    InvalidUsage.requireNonNull(type, label, "type");
    if (sendCounts.length != receiveCounts.length
        || LongStream.concat(LongStream.of(sendCounts), LongStream.of(receiveCounts))
            .anyMatch(elements -> elements < 0)) {
      throw InvalidUsage.of(
          "all-to-all-v sendCounts=%s receiveCounts=%s; give one count, 0 or more, for each rank",
          Arrays.toString(sendCounts), Arrays.toString(receiveCounts));
    }
    sendCounts = sendCounts.clone();
    receiveCounts = receiveCounts.clone();
    Collective.ALL_TO_ALL_V.multiply(checkedSum(sendCounts), type.size());
    Collective.ALL_TO_ALL_V.multiply(checkedSum(receiveCounts), type.size());
  }

  private static long checkedSum(long[] counts) {
    long sum = 0;
    for (long elements : counts) {
      if (sum + elements < 0) {
        throw Collective.ALL_TO_ALL_V.tooLarge(elements);
      }
      sum += elements;
    }
    return sum;
  }

  @Override
  public long[] sendCounts() {
    return sendCounts.clone();
  }

  @Override
  public long[] receiveCounts() {
    return receiveCounts.clone();
  }

  @Override
  public Collective collective() {
    return Collective.ALL_TO_ALL_V;
  }

  @Override
  public long count() {
    return sum(sendCounts, sendCounts.length);
  }

  /** Returns the number of ranks for which there are counts. */
  int countedRanks() {
    return sendCounts.length;
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return countBytes();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    return receiveOffset(receiveCounts.length);
  }

  @Override
  public long sendOffset(int peer) {
    return sum(sendCounts, peer) * type.size();
  }

  @Override
  public long sendBytes(int rank, int peer) {
    return sendCounts[peer] * type.size();
  }

  @Override
  public long receiveOffset(int peer) {
    return sum(receiveCounts, peer) * type.size();
  }

  @Override
  public long receiveBytes(int rank, int peer) {
    return receiveCounts[peer] * type.size();
  }

  private static long sum(long[] counts, int before) {
    long sum = 0;
    for (int i = 0; i < before; i++) {
      sum += counts[i];
    }
    return sum;
  }

  @Override
  public String toString() {
    return signature();
  }
}
