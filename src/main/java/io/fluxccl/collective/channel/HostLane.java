package io.fluxccl.collective.channel;

import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.semaphore.SemaphoreDescriptor;
import io.fluxccl.semaphore.SemaphoreDeviceHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.concurrent.UnsafeBuffer;

/** What one thread of a kernel of the host device has: its pipes, and room for addresses. */
final class HostLane {
  final int lane;
  final int rank;
  final int nRanks;
  final PipeLayout layout;

  /** By rank; null for this one. */
  final Pipe[] pipes;

  final long[] sources;

  /** Of a result: in each slot, and in the output. */
  final long[] targets;

  private HostLane(Pipes pipes, int lane) {
    PeerConnections peers = pipes.peers();
    this.lane = lane;
    this.rank = peers.rank();
    this.nRanks = peers.nRanks();
    this.layout = pipes.layout();
    this.pipes = new Pipe[nRanks];
    this.sources = new long[nRanks];
    this.targets = new long[nRanks + 1];
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        this.pipes[peer] = pipe(pipes, peer);
      }
    }
  }

  static HostLane[] of(Pipes pipes) {
    HostLane[] lanes = new HostLane[pipes.layout().lanes()];
    for (int lane = 0; lane < lanes.length; lane++) {
      lanes[lane] = new HostLane(pipes, lane);
    }
    return lanes;
  }

  private Pipe pipe(Pipes all, int peer) {
    boolean mapped = all.peers().isMapped(peer);
    return new Pipe(
        layout.slotBytes(),
        mapped ? semaphore(all.semaphore(Pipes.FILLED, lane, peer)) : null,
        mapped ? semaphore(all.semaphore(Pipes.EMPTIED, lane, peer)) : null,
        mapped ? null : channel(all, Pipes.FILLED, peer),
        mapped ? null : channel(all, Pipes.EMPTIED, peer),
        all.outbox(lane, peer),
        all.inbox(lane, peer),
        layout.outboxOffset(lane, rank, peer),
        layout.inboxOffset(lane, peer, rank));
  }

  private ProxyChannelDeviceHandle channel(Pipes all, int which, int peer) {
    return all.channel(which, lane, peer).deviceHandle();
  }

  private static SemaphoreDeviceHandle semaphore(DeviceHandle semaphore) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(SemaphoreDescriptor.HANDLE_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    UnsafeBuffer out = new UnsafeBuffer(bytes);
    semaphore.writeHandle(out, 0);
    return new SemaphoreDeviceHandle().wrap(out.addressOffset());
  }

  /** The rank that many places behind this one. */
  int peer(int distance) {
    return (rank + distance) % nRanks;
  }

  /** Where this lane's piece of that number begins in a pair's bytes. */
  long pieceBegin(long bytes, long number) {
    long begin = layout.begin(bytes, lane);
    return begin + number * layout.piece(layout.end(bytes, lane) - begin);
  }

  /** Its length. */
  long pieceBytes(long bytes, long number) {
    long begin = layout.begin(bytes, lane);
    long end = layout.end(bytes, lane);
    long piece = layout.piece(end - begin);
    return Math.min(piece, end - begin - number * piece);
  }

  /** How many pieces this lane has of a pair's bytes; 0 of {@link Spread#NONE}. */
  long pieces(long bytes) {
    if (bytes <= 0) {
      return 0;
    }
    long share = layout.end(bytes, lane) - layout.begin(bytes, lane);
    long piece = layout.piece(share);
    return (share + piece - 1) / piece;
  }
}
