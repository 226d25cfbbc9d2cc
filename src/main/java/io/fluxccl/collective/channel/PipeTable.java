package io.fluxccl.collective.channel;

import io.fluxccl.channel.ProxyChannelDescriptor;
import io.fluxccl.collective.DeviceHandles;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.SemaphoreDescriptor;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/** A GPU's pipes in its memory, by lane and rank: {@code Pipe} of pipe.cuh. */
final class PipeTable {
  /** {@code sizeof(Pipe)}. */
  static final int PIPE_BYTES = 400;

  private static final int FILLED = 0;
  private static final int EMPTIED = FILLED + SemaphoreDescriptor.HANDLE_LENGTH;
  private static final int FILLING = EMPTIED + SemaphoreDescriptor.HANDLE_LENGTH;
  private static final int EMPTYING = FILLING + ProxyChannelDescriptor.LENGTH;
  private static final int OUTBOX = EMPTYING + ProxyChannelDescriptor.LENGTH;
  private static final int INBOX = OUTBOX + 8;
  private static final int OUTBOX_OFFSET = INBOX + 8;
  private static final int REMOTE_INBOX_OFFSET = OUTBOX_OFFSET + 8;
  private static final int SLOT_BYTES = REMOTE_INBOX_OFFSET + 8;
  private static final int CREDITED = SLOT_BYTES + 16;

  private final Pipes pipes;
  private final int rank;
  private final int nRanks;

  private PipeTable(Pipes pipes) {
    this.pipes = pipes;
    this.rank = pipes.peers().rank();
    this.nRanks = pipes.peers().nRanks();
  }

  static long bytes(PipeLayout layout) {
    return (long) layout.lanes() * layout.nRanks() * PIPE_BYTES;
  }

  /** Writes the table, with all counts at their initial values. */
  static void write(Pipes pipes, DeviceBuffer target) {
    PipeTable table = new PipeTable(pipes);
    DeviceHandles.fill(target, PIPE_BYTES, pipes.layout().lanes() * table.nRanks, table::writePipe);
  }

  private void writePipe(MutableDirectBuffer out, int offset, int index) {
    int lane = index / nRanks;
    int peer = index % nRanks;
    if (peer == rank) {
      return;
    }
    PeerConnections peers = pipes.peers();
    PipeLayout layout = pipes.layout();
    if (peers.isMapped(peer)) {
      pipes.semaphore(Pipes.FILLED, lane, peer).writeHandle(out, offset + FILLED);
      pipes.semaphore(Pipes.EMPTIED, lane, peer).writeHandle(out, offset + EMPTIED);
    } else {
      pipes.channel(Pipes.FILLED, lane, peer).writeHandle(out, offset + FILLING);
      pipes.channel(Pipes.EMPTIED, lane, peer).writeHandle(out, offset + EMPTYING);
      copySemaphore(out, offset + FILLED, offset + FILLING);
      copySemaphore(out, offset + EMPTIED, offset + EMPTYING);
    }
    put(out, offset + OUTBOX, pipes.outbox(lane, peer));
    put(out, offset + INBOX, pipes.inbox(lane, peer));
    put(out, offset + OUTBOX_OFFSET, layout.outboxOffset(lane, rank, peer));
    put(out, offset + REMOTE_INBOX_OFFSET, layout.inboxOffset(lane, peer, rank));
    put(out, offset + SLOT_BYTES, layout.slotBytes());
    put(out, offset + CREDITED, PipeLayout.SLOTS);
  }

  /** Copies a proxy channel's semaphore to where kernels wait for both kinds of channels. */
  private static void copySemaphore(MutableDirectBuffer out, int to, int channel) {
    out.putBytes(
        to,
        out,
        channel + ProxyChannelDescriptor.SEMAPHORE_OFFSET,
        SemaphoreDescriptor.HANDLE_LENGTH);
  }

  private static void put(MutableDirectBuffer out, int offset, long value) {
    out.putLong(offset, value, ByteOrder.LITTLE_ENDIAN);
  }
}
