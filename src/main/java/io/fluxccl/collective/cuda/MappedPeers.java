package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * What a family's kernels are given of all ranks: the twin of {@code mapped_peers.cuh}, which tells
 * the layout. Filled in for each call; used by the one thread that enqueues.
 */
final class MappedPeers implements DeviceHandle {
  /** {@code MappedPeers::kMaxRanks}. */
  static final int MAX_RANKS = 16;

  /** {@code MappedPeers::kMaxBlocks}. */
  static final int MAX_BLOCKS = 160;

  private static final int POINTS = 4;
  private static final int EPOCHS_LENGTH = MAX_BLOCKS * Integer.BYTES;
  private static final int FLAGS_LENGTH = 2 * POINTS * MAX_BLOCKS * MAX_RANKS * Long.BYTES;

  /** Where, in a family's state, its own areas begin; {@code MappedPeers::kAreasOffset}. */
  static final int AREAS_OFFSET = EPOCHS_LENGTH + FLAGS_LENGTH;

  private static final int OUTPUTS_OFFSET = MAX_RANKS * Long.BYTES;
  private static final int STATES_OFFSET = OUTPUTS_OFFSET + MAX_RANKS * Long.BYTES;
  private static final int ABORT_OFFSET = STATES_OFFSET + MAX_RANKS * Long.BYTES;
  private static final int RANK_OFFSET = ABORT_OFFSET + Long.BYTES;
  private static final int N_RANKS_OFFSET = RANK_OFFSET + Integer.BYTES;
  private static final int LENGTH = N_RANKS_OFFSET + Integer.BYTES;

  private final int rank;
  private final int nRanks;
  private final UnsafeBuffer handle =
      new UnsafeBuffer(ByteBuffer.allocateDirect(LENGTH).order(ByteOrder.LITTLE_ENDIAN));

  /**
   * For a family on a lane.
   *
   * @param topology of the lane, at most {@link #MAX_RANKS} ranks
   * @param states of the family, by rank; zeroed when they were allocated
   * @param abort what waits watch
   */
  MappedPeers(RankTopology topology, RegisteredMemory[] states, AbortFlag abort) {
    this.rank = topology.rank();
    this.nRanks = topology.nRanks();
    for (int i = 0; i < nRanks; i++) {
      putLong(STATES_OFFSET + i * Long.BYTES, states[i].address());
    }
    putLong(ABORT_OFFSET, abort.deviceAddress());
    handle.putInt(RANK_OFFSET, rank, ByteOrder.LITTLE_ENDIAN);
    handle.putInt(N_RANKS_OFFSET, nRanks, ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Fills in a call's buffers: this rank's, and the peers' where they are registered.
   *
   * @return this, valid until the next call
   */
  MappedPeers bind(BoundCall call) {
    for (int i = 0; i < nRanks; i++) {
      putLong(i * Long.BYTES, call.isInputRegistered() ? call.inputOn(i) : 0);
      putLong(OUTPUTS_OFFSET + i * Long.BYTES, call.isOutputRegistered() ? call.outputOn(i) : 0);
    }
    putLong(rank * Long.BYTES, call.call().input() == null ? 0 : call.call().input().address());
    putLong(
        OUTPUTS_OFFSET + rank * Long.BYTES,
        call.call().output() == null ? 0 : call.call().output().address());
    return this;
  }

  private void putLong(int offset, long value) {
    handle.putLong(offset, value, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  public int handleLength() {
    return LENGTH;
  }

  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    target.putBytes(offset, handle, 0, LENGTH);
  }
}
