// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * An all-to-all with shares of any sizes, whose counts and offsets the kernel reads from device
 * memory when it runs. Only the senders set counts; receivers get them.
 *
 * @param input this rank's shares; null if it never has any
 * @param output for the shares of all ranks; null if it never gets any
 * @param counts the buffers of the counts and offsets
 * @param most the most elements from one rank to another, the same on every rank; a larger count
 *     aborts the job
 * @param type of the elements
 */
@Experimental
public record DeviceAllToAllV(
    DeviceBuffer input, DeviceBuffer output, Counts counts, long most, DataType type)
    implements RoutedCall {
  /**
   * Counts and offsets in elements, a signed integer of 8 bytes for each rank. Without offsets,
   * shares are contiguous, in rank order.
   *
   * @param send elements for each rank; read
   * @param sendOffsets where they begin in the input, or null; read
   * @param receiveOffsets where the elements from each rank begin in the output, or null; read.
   *     They must not overlap
   * @param received elements from each rank; written
   */
  public record Counts(
      DeviceBuffer send,
      DeviceBuffer sendOffsets,
      DeviceBuffer receiveOffsets,
      DeviceBuffer received) {
    /** Refuses null for what is needed. */
    public Counts {
      InvalidUsage.requireNonNull(send, Collective.ALL_TO_ALL_V.label(), "send");
      InvalidUsage.requireNonNull(received, Collective.ALL_TO_ALL_V.label(), "received");
    }

    /** Returns counts of contiguous shares. */
    public static Counts packed(DeviceBuffer send, DeviceBuffer received) {
      return new Counts(send, null, null, received);
    }
  }

  /** Refuses null, and a bound below 1 or too large. */
  public DeviceAllToAllV {
    String label = Collective.ALL_TO_ALL_V.label();
    InvalidUsage.requireNonNull(counts, label, "counts");
    InvalidUsage.requireNonNull(type, label, "type");
    if (most < 1) {
      throw InvalidUsage.of("%s most=%d; give 1 or more", label, most);
    }
    Collective.ALL_TO_ALL_V.multiply(most, type.size());
  }

  @Override
  public Collective collective() {
    return Collective.ALL_TO_ALL_V;
  }

  /** Returns the bound {@link #most}. */
  @Override
  public long count() {
    return most;
  }

  @Override
  public long inputBytes(int rank, int nRanks) {
    return input == null ? 0 : input.size();
  }

  @Override
  public long outputBytes(int rank, int nRanks) {
    return output == null ? 0 : output.size();
  }

  @Override
  public void checkRouting(Device device, RankTopology topology) {
    int rank = topology.rank();
    long bytes = (long) Long.BYTES * topology.nRanks();
    AlgorithmSelector.requireOther(this, device, rank, "send counts", counts.send, bytes);
    AlgorithmSelector.requireOther(this, device, rank, "receive counts", counts.received, bytes);
    if (counts.sendOffsets != null) {
      AlgorithmSelector.requireOther(this, device, rank, "send offsets", counts.sendOffsets, bytes);
    }
    if (counts.receiveOffsets != null) {
      AlgorithmSelector.requireOther(
          this, device, rank, "receive offsets", counts.receiveOffsets, bytes);
    }
  }

  @Override
  public List<DeviceBuffer> buffers() {
    return Stream.of(
            input, output, counts.send, counts.sendOffsets, counts.receiveOffsets, counts.received)
        .filter(Objects::nonNull)
        .toList();
  }

  @Override
  public String signature() {
    return Text.of("%s counts on the device, most=%d type=%s", collective().label(), most, type);
  }

  @Override
  public String toString() {
    return signature();
  }
}
