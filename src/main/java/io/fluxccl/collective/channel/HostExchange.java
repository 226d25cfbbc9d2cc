package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;

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
 * <p>Ranks never wait in a cycle: sending in step t waits only for what peers receive in steps
 * before t, see {@link PipeLayout#DEPTH}, and receiving in step t for what they send in steps up to
 * t.
 */
final class HostExchange {
  private final HostLane lane;
  private final int nRanks;
  private final Pipe[] pipes;
  private Exchange exchange;
  private HostReduction reduction;

  HostExchange(HostLane lane) {
    this.lane = lane;
    this.nRanks = lane.nRanks;
    this.pipes = lane.pipes;
  }

  /** Runs an exchange; returns early if the communicator is aborted. */
  void run(Exchange what, HostReduction with) {
    exchange = what;
    reduction = with;
    copyOwn();
    long steps = steps();
    long all = steps == 0 ? 0 : steps + (exchange.twice ? 2 * DEPTH : DEPTH);
    for (long step = 0; step < all; step++) {
      if (!give(step) || !receiveAndForward(step - DEPTH) || !collect(step - 2 * DEPTH)) {
        return;
      }
    }
  }

  private long steps() {
    long most = 0;
    for (int peer = 0; peer < nRanks; peer++) {
      most = Math.max(most, pieces(exchange.giveBytes(peer)));
      most = Math.max(most, pieces(exchange.takeBytes(peer)));
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

  private boolean give(long step) {
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(i);
      long bytes = exchange.giveBytes(peer);
      if (step < pieces(bytes)
          && !send(peer, exchange.input + exchange.giveOffset(peer), bytes, step)) {
        return false;
      }
    }
    return true;
  }

  private boolean send(int peer, long from, long bytes, long step) {
    long slot = pipes[peer].claim();
    if (slot == 0) {
      return false;
    }
    long length = lane.pieceBytes(bytes, step);
    HostMemory.copy(slot, from + lane.pieceBegin(bytes, step), length);
    pipes[peer].publish(length);
    return true;
  }

  private boolean receiveAndForward(long step) {
    if (step < 0) {
      return true;
    }
    return exchange.reduces ? reduce(step) : place(step) && forward(step);
  }

  private boolean place(long step) {
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(nRanks - i);
      long bytes = exchange.takeBytes(peer);
      if (step < pieces(bytes)
          && !receive(peer, exchange.place + exchange.takeOffset(peer), bytes, step)) {
        return false;
      }
    }
    return true;
  }

  private boolean receive(int peer, long to, long bytes, long step) {
    long slot = pipes[peer].take();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(to + lane.pieceBegin(bytes, step), slot, lane.pieceBytes(bytes, step));
    pipes[peer].release();
    return true;
  }

  private boolean forward(long step) {
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(i);
      long bytes = exchange.forward.bytes(peer);
      if (step < pieces(bytes) && !send(peer, exchange.forwardFrom, bytes, step)) {
        return false;
      }
    }
    return true;
  }

  /** Reduces a piece in rank order, into the output and into the slots to the ranks it goes to. */
  private boolean reduce(long step) {
    // All ranks send as many bytes.
    int other = lane.peer(1);
    long bytes = exchange.takeBytes(other);
    if (step >= pieces(bytes)) {
      return true;
    }
    long begin = lane.pieceBegin(bytes, step);
    long length = lane.pieceBytes(bytes, step);
    for (int i = 0; i < nRanks; i++) {
      int peer = lane.peer(nRanks - i);
      lane.sources[peer] = i == 0 ? exchange.own + begin : pipes[peer].take();
      if (lane.sources[peer] == 0) {
        return false;
      }
    }
    int targets = 0;
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(i);
      if (exchange.forward.bytes(peer) > 0) {
        lane.targets[targets] = pipes[peer].claim();
        if (lane.targets[targets++] == 0) {
          return false;
        }
      }
    }
    if (exchange.place != 0) {
      lane.targets[targets++] = exchange.place + begin;
    }
    reduction.reduce(
        exchange.type,
        exchange.op,
        lane.sources,
        nRanks,
        lane.targets,
        targets,
        length / exchange.type.size(),
        nRanks);
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(i);
      if (exchange.forward.bytes(peer) > 0) {
        pipes[peer].publish(length);
      }
      pipes[peer].release();
    }
    return true;
  }

  private boolean collect(long step) {
    if (step < 0) {
      return true;
    }
    for (int i = 1; i < nRanks; i++) {
      int peer = lane.peer(nRanks - i);
      long bytes = exchange.collect.bytes(peer);
      if (step < pieces(bytes)
          && !receive(peer, exchange.gather + exchange.collect.offset(peer), bytes, step)) {
        return false;
      }
    }
    return true;
  }
}
