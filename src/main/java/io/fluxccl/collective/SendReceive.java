// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;

/** A send to one rank and a receive from another, or the same, at once. */
public record SendReceive(
    DeviceBuffer input,
    long sendCount,
    int destination,
    DeviceBuffer output,
    long receiveCount,
    int source,
    DataType type)
    implements CollectiveCall {
  /** Refuses no type, counts below 0, counts that are too large, and a count without a peer. */
  public SendReceive {
    InvalidUsage.requireNonNull(type, Collective.SEND_RECEIVE.label(), "type");
    if (sendCount < 0 || receiveCount < 0) {
      throw InvalidUsage.of(
          "send-receive sendCount=%d receiveCount=%d; give 0 or more", sendCount, receiveCount);
    }
    if (sendCount > 0 && destination == NO_PEER || receiveCount > 0 && source == NO_PEER) {
      throw InvalidUsage.of(
          "send-receive sendCount=%d destination=%d receiveCount=%d source=%d: a count needs a peer;"
              + " give a rank, or the count 0 to leave that side out",
          sendCount, destination, receiveCount, source);
    }
    Collective.SEND_RECEIVE.multiply(Math.max(sendCount, receiveCount), type.size());
  }

  @Override
  public Collective collective() {
    return Collective.SEND_RECEIVE;
  }

  @Override
  public long count() {
    return Math.max(sendCount, receiveCount);
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return sendCount * type.size();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    return receiveCount * type.size();
  }

  @Override
  public long sendBytes(int rank, int peer) {
    return peer == destination ? sendCount * type.size() : 0;
  }

  @Override
  public long receiveBytes(int rank, int peer) {
    return peer == source ? receiveCount * type.size() : 0;
  }

  @Override
  public String toString() {
    return Text.of("%s to=%d from=%d", signature(), destination, source);
  }
}
