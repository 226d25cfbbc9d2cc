// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * The routing of a batch of tokens on this rank, in device memory: the experts of each token, and
 * the results of {@link Dispatch} for the kernels of the experts and for {@link Combine}. Integers
 * and floats have 4 bytes. The buffers may be used by one batch after the other; between a dispatch
 * and its combine no other dispatch may use them.
 *
 * @param shape of the batch
 * @param ids of the experts of this rank's tokens, {@code [tokens][topK]}; -1 for none. A token's
 *     experts differ. The gate writes it, dispatch reads it
 * @param weights of those experts, floats; likewise
 * @param receivedIds of the experts of the received tokens, {@code [capacity][topK]}, counted from
 *     this rank's first expert; -1 for experts of other ranks and for none. Dispatch writes it
 * @param receivedWeights of those experts, 0 for those of other ranks; likewise
 * @param sources the source of each received token, {@code [capacity]}: rank x tokens + token;
 *     likewise
 * @param perRank number of tokens received from each rank, {@code [n]}; likewise. Received tokens
 *     are grouped by source rank, in rank order
 * @param perExpert number of received tokens of each expert of this rank, {@code [experts / n]};
 *     likewise
 * @param plan data for combine, for no other use; likewise
 * @param memory the memory that {@link #close} frees, or null
 */
@Experimental
public record ExpertBatch(
    ExpertShape shape,
    DeviceBuffer ids,
    DeviceBuffer weights,
    DeviceBuffer receivedIds,
    DeviceBuffer receivedWeights,
    DeviceBuffer sources,
    DeviceBuffer perRank,
    DeviceBuffer perExpert,
    DeviceBuffer plan,
    DeviceBuffer memory)
    implements AutoCloseable {
  private static final int ALIGNMENT = 256;

  /** Refuses null for anything but the memory. */
  public ExpertBatch {
    InvalidUsage.requireNonNull(shape, "experts", "shape");
    InvalidUsage.requireNonNull(ids, "experts", "ids");
    InvalidUsage.requireNonNull(weights, "experts", "weights");
    InvalidUsage.requireNonNull(receivedIds, "experts", "receivedIds");
    InvalidUsage.requireNonNull(receivedWeights, "experts", "receivedWeights");
    InvalidUsage.requireNonNull(sources, "experts", "sources");
    InvalidUsage.requireNonNull(perRank, "experts", "perRank");
    InvalidUsage.requireNonNull(perExpert, "experts", "perExpert");
    InvalidUsage.requireNonNull(plan, "experts", "plan");
  }

  /**
   * Allocates all buffers, as one.
   *
   * @param device of the ranks
   * @param shape of the batch
   * @param nRanks how many ranks there are
   * @return the batch; the caller closes it
   */
  public static ExpertBatch allocate(Device device, ExpertShape shape, int nRanks) {
    requireEvenExperts(shape, nRanks);
    long[] sizes = {
      shape.routingBytes(),
      shape.routingBytes(),
      shape.receivedRoutingBytes(),
      shape.receivedRoutingBytes(),
      (long) shape.capacity() * Integer.BYTES,
      (long) nRanks * Integer.BYTES,
      (long) shape.experts() / nRanks * Integer.BYTES,
      shape.planBytes(nRanks)
    };
    long all = 0;
    for (long size : sizes) {
      all += aligned(size);
    }
    DeviceBuffer memory = device.allocate(all);
    DeviceBuffer[] parts = new DeviceBuffer[sizes.length];
    long at = 0;
    for (int i = 0; i < sizes.length; i++) {
      parts[i] = memory.slice(at, sizes[i]);
      at += aligned(sizes[i]);
    }
    return new ExpertBatch(
        shape, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7],
        memory);
  }

  private static long aligned(long size) {
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  static void requireEvenExperts(ExpertShape shape, int nRanks) {
    if (shape.experts() % nRanks != 0) {
      throw InvalidUsage.of(
          "experts=%d for %d ranks; give a multiple of the number of ranks",
          shape.experts(), nRanks);
    }
  }

  /** Refuses buffers that are closed, too small, misaligned or of another device. */
  void check(CollectiveCall call, Device device, RankTopology topology) {
    int rank = topology.rank();
    int nRanks = topology.nRanks();
    requireEvenExperts(shape, nRanks);
    long received = shape.receivedRoutingBytes();
    AlgorithmSelector.requireOther(call, device, rank, "ids", ids, shape.routingBytes());
    AlgorithmSelector.requireOther(call, device, rank, "weights", weights, shape.routingBytes());
    AlgorithmSelector.requireOther(call, device, rank, "receivedIds", receivedIds, received);
    AlgorithmSelector.requireOther(
        call, device, rank, "receivedWeights", receivedWeights, received);
    AlgorithmSelector.requireOther(
        call, device, rank, "sources", sources, (long) shape.capacity() * Integer.BYTES);
    AlgorithmSelector.requireOther(
        call, device, rank, "perRank", perRank, (long) nRanks * Integer.BYTES);
    AlgorithmSelector.requireOther(
        call,
        device,
        rank,
        "perExpert",
        perExpert,
        (long) shape.experts() / nRanks * Integer.BYTES);
    AlgorithmSelector.requireOther(call, device, rank, "plan", plan, shape.planBytes(nRanks));
  }

  /** Returns all buffers and some more, without those that are null. */
  List<DeviceBuffer> with(DeviceBuffer... more) {
    return Stream.concat(
            Stream.of(
                ids, weights, receivedIds, receivedWeights, sources, perRank, perExpert, plan),
            Stream.of(more))
        .filter(Objects::nonNull)
        .toList();
  }

  /** Frees what {@link #allocate} has allocated, once work already enqueued is done. Idempotent. */
  @Override
  public void close() {
    if (memory != null) {
      memory.close();
    }
  }
}
