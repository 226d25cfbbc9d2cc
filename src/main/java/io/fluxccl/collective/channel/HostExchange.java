// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;

/**
 * An {@link Exchange} on the host device, as one lane runs it: each step sends a piece to every
 * rank and receives one from every rank.
 *
 * <pre>
 *   step t    send piece t
 *             receive piece t - DEPTH, place or reduce it, and forward it
 *             collect piece t - 2 DEPTH
 * </pre>
 *
 * <p>Ranks never wait in a cycle. Sending in step t waits only for receives of peers in steps
 * before t, see {@link PipeLayout#DEPTH}. Receiving in step t waits only for their sends in steps
 * up to t.
 */
final class HostExchange {
  private final HostPipeWorker lane;
  private final int nRanks;
  private final PipeGroup group;
  private final IntPredicate forwards = peer -> forwards(peer);
  private Exchange exchange;
  private HostReduction reduction;

  HostExchange(HostPipeWorker lane) {
    this.lane = lane;
    this.nRanks = lane.nRanks;
    this.group = lane.group(IntStream.range(0, nRanks).toArray());
  }

  /** Runs an exchange; returns early if the communicator is aborted. */
  void run(Exchange what, HostReduction with) {
    exchange = what;
    reduction = with;
    copyOwn();
    long steps = steps();
    long all = steps == 0 ? 0 : steps + (exchange.twice ? 2 * DEPTH : DEPTH);
    for (long step = 0; step < all; step++) {
      if (!send(exchange.give, exchange.input, step)
          || !receiveAndForward(step - DEPTH)
          || !receive(exchange.collect, exchange.gather, step - 2 * DEPTH)) {
        return;
      }
    }
  }

  private long steps() {
    long most = 0;
    for (int peer = 0; peer < nRanks; peer++) {
      most = Math.max(most, pieces(exchange.give.bytes(peer)));
      most = Math.max(most, pieces(exchange.take.bytes(peer)));
      most = Math.max(most, pieces(exchange.forward.bytes(peer)));
      most = Math.max(most, pieces(exchange.collect.bytes(peer)));
    }
    return most;
  }

  private long pieces(long bytes) {
    return exchange.always && bytes >= 0 ? 1 : lane.pieces(bytes);
  }

  private void copyOwn() {
    long bytes = exchange.selfBytes;
    long begin = lane.layout.begin(bytes, lane.lane);
    long end = lane.layout.end(bytes, lane.lane);
    if (end > begin) {
      HostMemory.copy(exchange.selfTo + begin, exchange.selfFrom + begin, end - begin);
    }
  }

  private boolean forwards(int peer) {
    return exchange.forward.bytes(peer) > 0;
  }

  private boolean send(PeerByteRanges spread, long from, long step) {
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.rankAfter(i);
      long bytes = spread.bytes(peer);
      long at = spread.offset(peer) + lane.pieceBegin(bytes, step);
      if (step < pieces(bytes) && !lane.pipes[peer].send(from + at, lane.pieceBytes(bytes, step))) {
        return false;
      }
    }
    return true;
  }

  private boolean receive(PeerByteRanges spread, long to, long step) {
    for (int i = 1; i < nRanks && step >= 0; i++) {
      int peer = lane.rankAfter(nRanks - i);
      long bytes = spread.bytes(peer);
      long at = spread.offset(peer) + lane.pieceBegin(bytes, step);
      if (step < pieces(bytes)
          && !lane.pipes[peer].receive(to + at, lane.pieceBytes(bytes, step))) {
        return false;
      }
    }
    return true;
  }

  private boolean receiveAndForward(long step) {
    if (step < 0) {
      return true;
    }
    return exchange.reduces
        ? reduce(step)
        : receive(exchange.take, exchange.place, step)
            && send(exchange.forward, exchange.forwardFrom, step);
  }

  /** Reduces a piece in rank order, into the output and into the slots to the ranks it goes to. */
  private boolean reduce(long step) {
    // All ranks send as many bytes.
    int other = lane.rankAfter(1);
    long bytes = exchange.take.bytes(other);
    if (step >= pieces(bytes)) {
      return true;
    }
    long begin = lane.pieceBegin(bytes, step);
    long length = lane.pieceBytes(bytes, step);
    if (!group.take(lane.sources, exchange.own + begin)) {
      return false;
    }
    int targets = group.claim(lane.targets, forwards);
    if (targets < 0) {
      return false;
    }
    if (exchange.place != 0) {
      lane.targets[targets++] = exchange.place + begin;
    }
    lane.reduce(reduction, exchange.type, exchange.op, nRanks, targets, length, nRanks);
    group.publish(length, forwards);
    group.release();
    return true;
  }
}
