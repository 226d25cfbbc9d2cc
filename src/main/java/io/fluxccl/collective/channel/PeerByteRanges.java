// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import java.util.function.IntToLongFunction;
import org.agrona.MutableDirectBuffer;

/**
 * The bytes that a rank sends to each other rank, or receives from it.
 *
 * @param total bytes from the first to the last
 * @param stride bytes from the begin of a rank's bytes to the next rank's; 0: all are the same
 * @param each bytes of each rank; the last ranks may have fewer
 * @param only the one rank that has any; {@link #ANY} for all
 * @param except a rank that has none; {@link #ANY} if there is no such rank
 * @param ends where each rank's bytes end, if any rank may have any number; otherwise null
 */
record PeerByteRanges(long total, long stride, long each, int only, int except, long[] ends)
    implements DeviceHandle {
  static final int ANY = -1;

  /** The bytes of a rank that takes no part. */
  static final long NONE = -1;

  static final PeerByteRanges NOTHING = new PeerByteRanges(0, 0, 0, Integer.MAX_VALUE, ANY, null);

  /** Returns the same bytes for all ranks. */
  static PeerByteRanges whole(long bytes) {
    return new PeerByteRanges(bytes, 0, bytes, ANY, ANY, null);
  }

  /** Returns one part for each rank. */
  static PeerByteRanges parts(long total, long stride) {
    return new PeerByteRanges(total, stride, stride, ANY, ANY, null);
  }

  /** Returns as many bytes for each rank, a stride apart. */
  static PeerByteRanges apart(long each, long stride, int nRanks) {
    return new PeerByteRanges((nRanks - 1) * stride + each, stride, each, ANY, ANY, null);
  }

  /** Returns contiguous ranges, with any number of bytes for each rank. */
  static PeerByteRanges listed(int nRanks, IntToLongFunction bytes) {
    long[] ends = new long[nRanks];
    for (int rank = 0; rank < nRanks; rank++) {
      ends[rank] = (rank == 0 ? 0 : ends[rank - 1]) + bytes.applyAsLong(rank);
    }
    return new PeerByteRanges(0, 0, 0, Integer.MAX_VALUE, ANY, ends);
  }

  PeerByteRanges only(int rank) {
    return new PeerByteRanges(total, stride, each, rank, except, ends);
  }

  PeerByteRanges except(int rank) {
    return new PeerByteRanges(total, stride, each, only, rank, ends);
  }

  long offset(int peer) {
    if (ends != null) {
      return peer == 0 ? 0 : ends[peer - 1];
    }
    return Math.min(total, stride * peer);
  }

  /** Returns the bytes of a rank, or {@link #NONE}. */
  long bytes(int peer) {
    if (ends != null) {
      return ends[peer] - offset(peer);
    }
    if (only != ANY && peer != only || peer == except) {
      return NONE;
    }
    return Math.min(each, total - offset(peer));
  }

  @Override
  public int handleLength() {
    return 3 * Long.BYTES + 2 * Integer.BYTES;
  }

  /** Writes {@code PeerByteRanges} of pipe_exchange.cuh. */
  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    target.putLong(offset, total, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + 8, stride, ByteOrder.LITTLE_ENDIAN);
    target.putLong(offset + 16, each, ByteOrder.LITTLE_ENDIAN);
    target.putInt(offset + 24, only, ByteOrder.LITTLE_ENDIAN);
    target.putInt(offset + 28, except, ByteOrder.LITTLE_ENDIAN);
  }
}
