// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Arrays;

/**
 * The buffers and states of all ranks, as an argument of the kernels of a region: the twin of
 * {@code mapped_peers.cuh}, which defines the layout. Filled in for each call; used by the one
 * thread that enqueues.
 */
final class MappedPeers extends KernelStruct {
  /** {@code MappedPeers::kMaxRanks}. */
  static final int MAX_RANKS = 16;

  /** {@code MappedPeers::kMaxBlocks}. */
  static final int MAX_BLOCKS = 160;

  private static final int MAX_SMALL_BLOCKS = GpuGrid.SMALL_PER_BLOCK * MAX_BLOCKS;
  private static final int POINTS = 4;
  private static final int EPOCHS_LENGTH = MAX_SMALL_BLOCKS * Integer.BYTES;
  private static final int FLAGS_LENGTH = 2 * POINTS * MAX_BLOCKS * MAX_RANKS * Long.BYTES;

  /** Offset of areas of packets in a region; {@code MappedPeers::kAreasOffset}. */
  static final int AREAS_OFFSET = EPOCHS_LENGTH + FLAGS_LENGTH;

  private static final int OUTPUTS_OFFSET = MAX_RANKS * Long.BYTES;
  private static final int STATES_OFFSET = 2 * OUTPUTS_OFFSET;
  private static final int ABORT_OFFSET = 3 * OUTPUTS_OFFSET;
  private static final int LENGTH = ABORT_OFFSET + Long.BYTES + 2 * Integer.BYTES;

  private final int rank;
  private final int nRanks;

  /** Returns the addresses of a range of exchanged memories, by rank. */
  static long[] addresses(RegisteredMemory[] memories, long offset) {
    return Arrays.stream(memories).mapToLong(memory -> memory.address() + offset).toArray();
  }

  /**
   * Creates the struct of a region on a lane.
   *
   * @param topology of the lane, at most {@link #MAX_RANKS} ranks
   * @param states addresses of the region, by rank; zeroed when they were allocated
   * @param abort the abort flag that waits watch
   */
  MappedPeers(RankTopology topology, long[] states, AbortFlag abort) {
    super(LENGTH);
    this.rank = topology.rank();
    this.nRanks = topology.nRanks();
    at(STATES_OFFSET);
    for (long state : states) {
      putLong(state);
    }
    at(ABORT_OFFSET).putLong(abort.deviceAddress()).putInt(rank).putInt(nRanks);
  }

  /**
   * Fills in a call's buffers: this rank's, and the peers' if they are registered.
   *
   * @return this, valid until the next call
   */
  MappedPeers bind(BoundCall call) {
    for (int i = 0; i < nRanks; i++) {
      at(i * Long.BYTES).putLong(call.isInputRegistered() ? call.inputOn(i) : 0);
      at(OUTPUTS_OFFSET + i * Long.BYTES).putLong(call.isOutputRegistered() ? call.outputOn(i) : 0);
    }
    at(rank * Long.BYTES).putLong(call.call().inputAddress());
    at(OUTPUTS_OFFSET + rank * Long.BYTES).putLong(call.call().outputAddress());
    return this;
  }
}
