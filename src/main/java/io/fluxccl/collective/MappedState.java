package io.fluxccl.collective;

import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/**
 * The state that the kernels of {@link MappedKernel} keep in device memory, and what they are
 * given; mapped_ranks.cuh and all_reduce_packets.cuh tell the layout. Little-endian.
 *
 * @param nRanks how many ranks
 * @param oneShotPackets how many packets hold an input that goes in one shot
 * @param chunkPackets how many packets hold a chunk
 */
record MappedState(int nRanks, int oneShotPackets, int chunkPackets) {
  /** {@code kMaxRanks} of mapped_ranks.cuh. */
  static final int MAX_RANKS = 16;

  private static final int EPOCHS = GpuGrid.MAX_BLOCKS * Integer.BYTES;
  private static final int FLAGS = 2 * GpuGrid.MAX_BLOCKS * MAX_RANKS * Integer.BYTES;
  private static final int PACKET = 16;
  private static final int PAYLOAD = 8;
  private static final int SETS = 2;

  private static final int STATES_OFFSET = MAX_RANKS * Long.BYTES;
  private static final int ABORT_OFFSET = STATES_OFFSET + MAX_RANKS * Long.BYTES;
  private static final int RANK_OFFSET = ABORT_OFFSET + Long.BYTES;
  private static final int N_RANKS_OFFSET = RANK_OFFSET + Integer.BYTES;
  private static final int ONE_SHOT_OFFSET = N_RANKS_OFFSET + Integer.BYTES;
  private static final int CHUNK_OFFSET = ONE_SHOT_OFFSET + Integer.BYTES;

  /** Bytes of {@code MappedRanks}. */
  static final int HANDLE_LENGTH = CHUNK_OFFSET + Integer.BYTES;

  /** For a buffer of that size. */
  static MappedState forBuffer(long bytes, int nRanks) {
    long oneShot = Math.min(bytes, MappedKernel.ONE_SHOT_LIMIT);
    long chunk = Partition.maxChunkBytes(Math.min(bytes, MappedKernel.PACKET_LIMIT), nRanks);
    boolean twoPhases = bytes > MappedKernel.ONE_SHOT_LIMIT;
    return new MappedState(nRanks, packets(oneShot), twoPhases ? packets(chunk) : 0);
  }

  private static int packets(long bytes) {
    return (int) ((bytes + PAYLOAD - 1) / PAYLOAD);
  }

  /** Bytes of a rank's state. */
  long length() {
    long packets = (long) SETS * nRanks * (oneShotPackets + 2L * chunkPackets);
    return EPOCHS + FLAGS + packets * PACKET;
  }

  /**
   * What a rank's kernels are given.
   *
   * @param rank whose
   * @param buffers everybody's, as mapped there, by rank
   * @param states everybody's, as mapped there, by rank
   * @param abort what its waits watch
   */
  DeviceHandle handle(int rank, long[] buffers, long[] states, AbortFlag abort) {
    return new DeviceHandle() {
      @Override
      public int handleLength() {
        return HANDLE_LENGTH;
      }

      @Override
      public void writeHandle(MutableDirectBuffer target, int offset) {
        target.setMemory(offset, HANDLE_LENGTH, (byte) 0);
        for (int i = 0; i < nRanks; i++) {
          int at = offset + i * Long.BYTES;
          target.putLong(at, buffers[i], ByteOrder.LITTLE_ENDIAN);
          target.putLong(at + STATES_OFFSET, states[i], ByteOrder.LITTLE_ENDIAN);
        }
        target.putLong(offset + ABORT_OFFSET, abort.deviceAddress(), ByteOrder.LITTLE_ENDIAN);
        target.putInt(offset + RANK_OFFSET, rank, ByteOrder.LITTLE_ENDIAN);
        target.putInt(offset + N_RANKS_OFFSET, nRanks, ByteOrder.LITTLE_ENDIAN);
        target.putInt(offset + ONE_SHOT_OFFSET, oneShotPackets, ByteOrder.LITTLE_ENDIAN);
        target.putInt(offset + CHUNK_OFFSET, chunkPackets, ByteOrder.LITTLE_ENDIAN);
      }
    };
  }
}
