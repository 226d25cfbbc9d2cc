// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.host.HostDispatch.HostPlan;
import io.fluxccl.collective.host.HostRouted.HostScratch;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.FloatRow;
import io.fluxccl.device.host.HostMemory;

/** Returns the sums of what experts give: the same bits as {@code combine.cuh}. */
final class HostCombine implements AutoCloseable {
  private final int rank;
  private final int nRanks;
  private final PeerStreams streams;
  private final HostPlan plan;
  private final HostScratch rowMemory;
  private final HostScratch arrivedMemory;
  private final int[] token;
  private final FloatRow sums = new FloatRow();

  // State of the running call.
  private Combine call;
  private ExpertShape shape;
  private int bytes;
  private long rows;
  private long arrived;

  HostCombine(int rank, int nRanks, PeerStreams streams, Device device) {
    this.rank = rank;
    this.nRanks = nRanks;
    this.streams = streams;
    this.plan = new HostPlan(nRanks);
    this.rowMemory = new HostScratch(device);
    this.arrivedMemory = new HostScratch(device);
    this.token = new int[2 * nRanks];
  }

  /** Runs a call; returns early if the communicator is aborted. */
  void run(Combine newCall, long abort) {
    call = newCall;
    shape = call.batch().shape();
    bytes = shape.combinedBytes();
    plan.bind(call.batch());
    rows = rowMemory.reserve((long) nRanks * bytes);
    arrived = arrivedMemory.reserve((long) nRanks * shape.tokens() * bytes);
    if (streams.exchange(this::sent, this::received, abort)) {
      for (int t = 0; t < shape.tokens(); t++) {
        sum(t);
      }
    }
  }

  private long arrivedFrom(int from, int t) {
    return arrived + ((long) from * shape.tokens() + t) * bytes;
  }

  private boolean sent(int peer, int index, PeerStreams.Range range) {
    token[peer] = plan.nextReceived(peer, index == 0 ? 0 : token[peer] + 1);
    if (token[peer] < 0) {
      return false;
    }
    range.set(given(plan.place(peer, token[peer]), peer), bytes);
    return true;
  }

  private boolean received(int from, int index, PeerStreams.Range range) {
    int at = nRanks + from;
    token[at] = plan.nextSent(from, index == 0 ? 0 : token[at] + 1);
    if (token[at] < 0) {
      return false;
    }
    range.set(arrivedFrom(from, token[at]), bytes);
    return true;
  }

  /** Returns the address of what this rank gives for a received token, in a peer's row if new. */
  private long given(int place, int peer) {
    if (call.rows() == null) {
      return call.input().address() + (long) place * bytes;
    }
    sums.clear(shape.hidden());
    for (int k = 0; k < shape.topK(); k++) {
      long pair = ((long) place * shape.topK() + k) * Integer.BYTES;
      int row = HostMemory.getInt(call.rows().address() + pair);
      if (HostMemory.getInt(call.batch().receivedIds().address() + pair) >= 0 && row != -1) {
        if (row < 0 || row >= call.inputRows()) {
          throw InvalidUsage.of(
              "%s: rank %d has row=%d, which is neither a row of the input nor -1",
              call, rank, row);
        }
        add(
            call.input().address() + (long) row * bytes,
            HostMemory.getFloat(call.batch().receivedWeights().address() + pair));
      }
    }
    long target = rows + (long) peer * bytes;
    sums.write(DataType.BFLOAT16, target, shape.hidden());
    return target;
  }

  private void sum(int t) {
    long own = plan.nextSent(rank, t) == t ? given(plan.place(rank, t), rank) : 0;
    sums.clear(shape.hidden());
    for (int from = 0; from < nRanks; from++) {
      if (plan.nextSent(from, t) == t) {
        add(from == rank ? own : arrivedFrom(from, t), 1);
      }
    }
    sums.write(DataType.BFLOAT16, call.output().address() + (long) t * bytes, shape.hidden());
  }

  private void add(long values, float weight) {
    for (int i = 0; i < shape.hidden(); i++) {
      sums.values()[i] += weight * FloatRow.get(DataType.BFLOAT16, values, i);
    }
  }

  @Override
  public void close() {
    rowMemory.close();
    arrivedMemory.close();
  }
}
