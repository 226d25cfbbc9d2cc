// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostReduction;
import java.util.stream.IntStream;

/** One thread of a host-device kernel: its pipes, its share of messages, arrays for addresses. */
final class HostPipeWorker {
  final int lane;
  final int rank;
  final int nRanks;
  final PipeLayout layout;

  /** By rank; null for this rank. */
  final Pipe[] pipes;

  final long[] sources;

  /** Addresses of a result: in each slot, and in the output. */
  final long[] targets;

  private HostPipeWorker(Pipes pipes, int lane) {
    PeerConnections peers = pipes.peers;
    this.lane = lane;
    this.rank = peers.rank();
    this.nRanks = peers.nRanks();
    this.layout = pipes.layout;
    this.pipes = new Pipe[nRanks];
    this.sources = new long[nRanks];
    this.targets = new long[nRanks + 1];
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        this.pipes[peer] = pipes.hostPipe(lane, peer);
      }
    }
  }

  /** Begins a call: its signature goes with its messages. */
  void begin(BoundCall bound) {
    CollectiveCall call = bound.call();
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        long sent = call.sendBytes(rank, peer);
        long expected = call.receiveBytes(rank, peer);
        pipes[peer].begin(bound.signature(sent, expected), bound.signature(expected, sent));
      }
    }
  }

  /** Returns the pipes to some ranks, one of which is this one. */
  PipeGroup group(int... ranks) {
    return new PipeGroup(
        IntStream.of(ranks).mapToObj(peer -> pipes[peer]).toArray(Pipe[]::new),
        IntStream.of(ranks).boxed().toList().indexOf(rank));
  }

  /** Combines the first sources, in their order, into the first targets. */
  void reduce(
      HostReduction with,
      DataType type,
      ReduceOp op,
      int nSources,
      int nTargets,
      long bytes,
      int divisor) {
    with.reduce(type, op, sources, nSources, targets, nTargets, bytes / type.size(), divisor);
  }

  static HostPipeWorker[] of(Pipes pipes) {
    return IntStream.range(0, pipes.layout.lanes())
        .mapToObj(lane -> new HostPipeWorker(pipes, lane))
        .toArray(HostPipeWorker[]::new);
  }

  /** Returns the rank at a cyclic distance after this one. */
  int rankAfter(int distance) {
    return (rank + distance) % nRanks;
  }

  /** Returns where a piece of this lane begins in a pair's bytes. */
  long pieceBegin(long bytes, long number) {
    long begin = layout.begin(bytes, lane);
    return begin + number * layout.piece(layout.end(bytes, lane) - begin);
  }

  /** Returns the length of a piece of this lane. */
  long pieceBytes(long bytes, long number) {
    long begin = layout.begin(bytes, lane);
    long end = layout.end(bytes, lane);
    long piece = layout.piece(end - begin);
    return Math.min(piece, end - begin - number * piece);
  }

  /** Returns how many pieces this lane has of a pair's bytes; 0 of {@link PeerByteRanges#NONE}. */
  long pieces(long bytes) {
    if (bytes <= 0) {
      return 0;
    }
    long share = layout.end(bytes, lane) - layout.begin(bytes, lane);
    long piece = layout.piece(share);
    return (share + piece - 1) / piece;
  }
}
