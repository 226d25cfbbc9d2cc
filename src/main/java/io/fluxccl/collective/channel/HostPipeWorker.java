// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import java.util.stream.IntStream;

/**
 * One thread of a host-device kernel: its pipes, and its share of messages. It interprets the steps
 * of a {@link HostSchedule}. A step names the sources and the targets of some bytes, which are
 * addresses or ranks, and then copies or combines them:
 *
 * <pre>{@code
 * worker.fromPeer(2).to(output).copy(bytes); // receive
 * worker.fromAll(ranks, input).toPeer(3).combine(bytes, 1); // combine in the order of the ranks
 * }</pre>
 */
final class HostPipeWorker {
  final int lane;
  final int rank;
  final int nRanks;
  final PipeLayout layout;

  private final Pipe[] pipes;

  // The pipe, or null, and the address of each source and target of the next copy or combination.
  private final Pipe[] sourcePipes;
  private final long[] sources;
  private final Pipe[] targetPipes;
  private final long[] targets;
  private int nSources;
  private int nTargets;

  // Of the running call.
  private HostReduction reduction;
  private DataType type;
  private ReduceOp op;

  private HostPipeWorker(Pipes pipes, int lane) {
    PeerConnections peers = pipes.peers;
    this.lane = lane;
    this.rank = peers.rank();
    this.nRanks = peers.nRanks();
    this.layout = pipes.layout;
    this.pipes = new Pipe[nRanks];
    this.sourcePipes = new Pipe[nRanks + 1];
    this.sources = new long[nRanks + 1];
    this.targetPipes = new Pipe[nRanks + 1];
    this.targets = new long[nRanks + 1];
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        this.pipes[peer] = pipes.hostPipe(lane, peer);
      }
    }
  }

  static HostPipeWorker[] of(Pipes pipes) {
    return IntStream.range(0, pipes.layout.lanes())
        .mapToObj(lane -> new HostPipeWorker(pipes, lane))
        .toArray(HostPipeWorker[]::new);
  }

  /** Begins a call: its signature goes with its messages. */
  void begin(BoundCall bound, HostReduction with) {
    CollectiveCall call = bound.call();
    reduction = with;
    type = call.type();
    op = call.op();
    nSources = 0;
    nTargets = 0;
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        long sent = call.sendBytes(rank, peer);
        long expected = call.receiveBytes(rank, peer);
        pipes[peer].begin(bound.signature(sent, expected), bound.signature(expected, sent));
      }
    }
  }

  /** Adds an address to the sources. */
  HostPipeWorker from(long address) {
    sourcePipes[nSources] = null;
    sources[nSources++] = address;
    return this;
  }

  /** Adds the next message of a rank to the sources. */
  HostPipeWorker fromPeer(int peer) {
    sourcePipes[nSources++] = pipes[peer];
    return this;
  }

  /** Adds the next message of each rank to the sources, and an address for this rank. */
  HostPipeWorker fromAll(int[] ranks, long own) {
    for (int each : ranks) {
      if (each == rank) {
        from(own);
      } else {
        fromPeer(each);
      }
    }
    return this;
  }

  /** Adds an address to the targets. */
  HostPipeWorker to(long address) {
    targetPipes[nTargets] = null;
    targets[nTargets++] = address;
    return this;
  }

  /** Adds a message to a rank to the targets. */
  HostPipeWorker toPeer(int peer) {
    targetPipes[nTargets++] = pipes[peer];
    return this;
  }

  /** Copies the only source to all targets; returns false if the communicator was aborted. */
  boolean copy(long bytes) {
    if (!take()) {
      return false;
    }
    for (int i = 0; i < nTargets; i++) {
      if (!claim(i)) {
        return false;
      }
      if (bytes > 0 && targets[i] != sources[0]) {
        HostMemory.copy(targets[i], sources[0], bytes);
      }
      publish(i, bytes);
    }
    nTargets = 0;
    release();
    return true;
  }

  /**
   * Combines the sources, in their order, into all targets; returns false if the communicator was
   * aborted.
   *
   * @param divisor of an average, once all values are in it; 1 before
   */
  boolean combine(long bytes, int divisor) {
    if (!take() || !combine(0, bytes, divisor)) {
      return false;
    }
    release();
    return true;
  }

  /** Waits for the sources, which are then combined part by part, and released at the end. */
  boolean take() {
    for (int i = 0; i < nSources; i++) {
      if (sourcePipes[i] != null) {
        sources[i] = sourcePipes[i].take();
        if (sources[i] == 0) {
          return false;
        }
      }
    }
    return true;
  }

  /** Combines a part of the sources, which have arrived, into the targets. */
  boolean combine(long offset, long bytes, int divisor) {
    for (int i = 0; i < nTargets; i++) {
      if (!claim(i)) {
        return false;
      }
    }
    if (bytes > 0) {
      moveSources(offset);
      long count = bytes / type.size();
      reduction.reduce(type, op, sources, nSources, targets, nTargets, count, divisor);
      moveSources(-offset);
    }
    for (int i = 0; i < nTargets; i++) {
      publish(i, bytes);
    }
    nTargets = 0;
    return true;
  }

  private void moveSources(long offset) {
    for (int i = 0; i < nSources; i++) {
      sources[i] += offset;
    }
  }

  private boolean claim(int target) {
    if (targetPipes[target] == null) {
      return true;
    }
    targets[target] = targetPipes[target].claim();
    return targets[target] != 0;
  }

  private void publish(int target, long bytes) {
    if (targetPipes[target] != null) {
      targetPipes[target].publish(bytes);
    }
  }

  /** Frees the sources. */
  void release() {
    for (int i = 0; i < nSources; i++) {
      if (sourcePipes[i] != null) {
        sourcePipes[i].release();
      }
    }
    nSources = 0;
  }

  /** Returns the pipe to a rank; null for this rank. */
  Pipe pipe(int peer) {
    return pipes[peer];
  }

  /** Returns the address of the first target of the latest copy or combination. */
  long firstTarget() {
    return targets[0];
  }

  /**
   * Waits until all of some ranks have called this; then each sees what any wrote before.
   *
   * @param ranks this one and others
   */
  boolean barrier(int[] ranks) {
    for (int each : ranks) {
      if (each != rank && !from(0).toPeer(each).copy(0)) {
        return false;
      }
    }
    for (int each : ranks) {
      if (each != rank && !fromPeer(each).copy(0)) {
        return false;
      }
    }
    return true;
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
