// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.DeviceAllToAllV;
import io.fluxccl.collective.host.HostRouted.HostScratch;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;

/**
 * An all-to-all-v whose counts are read when it runs. Each rank first sends each peer its count, or
 * {@link #REFUSED} and the count or offset that is wrong.
 */
final class HostCountedExchange implements AutoCloseable {
  private static final long OK = 0;
  private static final long REFUSED = 1;
  private static final int HEADER = 2 * Long.BYTES;

  private final int rank;
  private final int nRanks;
  private final PeerStreams streams;
  private final HostScratch scratch;
  private final long[] sendCounts;
  private final long[] sendOffsets;
  private final long[] receiveCounts;
  private final long[] receiveOffsets;

  // State of the running call.
  private DeviceAllToAllV call;
  private int size;
  private long headers;

  HostCountedExchange(int rank, int nRanks, PeerStreams streams, Device device) {
    this.rank = rank;
    this.nRanks = nRanks;
    this.streams = streams;
    this.scratch = new HostScratch(device);
    this.sendCounts = new long[nRanks];
    this.sendOffsets = new long[nRanks];
    this.receiveCounts = new long[nRanks];
    this.receiveOffsets = new long[nRanks];
  }

  /** Runs a call; returns early if the communicator is aborted. */
  void run(DeviceAllToAllV newCall, long abort) {
    call = newCall;
    size = call.type().size();
    headers = scratch.reserve((nRanks + 1L) * HEADER * 2);
    long wrong = readOwn();
    for (int peer = 0; peer < nRanks; peer++) {
      HostMemory.putLong(sentHeader(peer), wrong == 0 ? OK : REFUSED);
      HostMemory.putLong(sentHeader(peer) + Long.BYTES, wrong == 0 ? sendCounts[peer] : wrong);
    }
    if (!streams.exchange(
        (peer, index, range) -> header(sentHeader(peer), index, range),
        (peer, index, range) -> header(receivedHeader(peer), index, range),
        abort)) {
      return;
    }
    HostMemory.copy(receivedHeader(rank), sentHeader(rank), HEADER);
    readHeaders();
    copyOwn();
    streams.exchange(
        (peer, index, range) -> part(call.input(), sendOffsets, sendCounts, peer, index, range),
        (peer, index, range) ->
            part(call.output(), receiveOffsets, receiveCounts, peer, index, range),
        abort);
  }

  private long sentHeader(int peer) {
    return headers + (long) peer * HEADER;
  }

  private long receivedHeader(int peer) {
    return headers + (long) (nRanks + peer) * HEADER;
  }

  private static boolean header(long address, int index, PeerStreams.Range range) {
    range.set(address, HEADER);
    return index == 0;
  }

  private boolean part(
      DeviceBuffer buffer,
      long[] offsets,
      long[] counts,
      int peer,
      int index,
      PeerStreams.Range range) {
    if (index > 0 || counts[peer] == 0) {
      return false;
    }
    range.set(buffer.address() + offsets[peer] * size, counts[peer] * size);
    return true;
  }

  /** Reads what this rank sends; returns a count or an offset that is wrong, or 0. */
  private long readOwn() {
    long wrong = 0;
    long packed = 0;
    long elements = call.inputBytes(rank, nRanks) / size;
    DeviceBuffer offsets = call.counts().sendOffsets();
    for (int peer = 0; peer < nRanks; peer++) {
      long at = (long) peer * Long.BYTES;
      long count = HostMemory.getLong(call.counts().send().address() + at);
      long offset = offsets == null ? packed : HostMemory.getLong(offsets.address() + at);
      if (count < 0 || count > call.most()) {
        wrong = wrong == 0 ? count : wrong;
      } else if (count > 0 && (offset < 0 || offset > elements - count)) {
        wrong = wrong == 0 ? (offset == 0 ? count : offset) : wrong;
      }
      sendCounts[peer] = count;
      sendOffsets[peer] = offset;
      packed += count;
    }
    return wrong;
  }

  /** Places what arrives, and refuses what is wrong; nothing has been written then. */
  private void readHeaders() {
    long packed = 0;
    long elements = call.outputBytes(rank, nRanks) / size;
    DeviceBuffer offsets = call.counts().receiveOffsets();
    for (int from = 0; from < nRanks; from++) {
      long at = (long) from * Long.BYTES;
      long count = HostMemory.getLong(receivedHeader(from) + Long.BYTES);
      if (HostMemory.getLong(receivedHeader(from)) != OK) {
        throw InvalidUsage.of(
            "%s: rank %d has a send count or offset of %d, which is not within the bound or its"
                + " input",
            call, from, count);
      }
      long offset = offsets == null ? packed : HostMemory.getLong(offsets.address() + at);
      boolean fits = count == 0 || offset >= 0 && offset <= elements - count;
      if (count < 0 || count > call.most() || !fits) {
        throw InvalidUsage.of(
            "%s: rank %d sends %d elements, for which the output of rank %d has no room",
            call, from, count, rank);
      }
      receiveCounts[from] = count;
      receiveOffsets[from] = offset;
      packed += count;
    }
    for (int from = 0; from < nRanks; from++) {
      HostMemory.putLong(
          call.counts().received().address() + (long) from * Long.BYTES, receiveCounts[from]);
    }
  }

  private void copyOwn() {
    if (sendCounts[rank] > 0) {
      HostMemory.copy(
          call.output().address() + receiveOffsets[rank] * size,
          call.input().address() + sendOffsets[rank] * size,
          sendCounts[rank] * size);
    }
  }

  @Override
  public void close() {
    scratch.close();
  }
}
