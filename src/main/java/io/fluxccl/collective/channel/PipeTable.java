// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyChannelDescriptor;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.SemaphoreDescriptor;

/** A GPU's pipes in its memory, by lane and rank: {@code Pipe} of pipe.cuh. */
final class PipeTable {
  /** {@code sizeof(Pipe)}. */
  private static final int PIPE_BYTES = 400;

  private static final int OUTBOX_OFFSET =
      2 * SemaphoreDescriptor.HANDLE_LENGTH + 2 * ProxyChannelDescriptor.LENGTH;

  private PipeTable() {}

  static long bytes(PipeLayout layout) {
    return (long) layout.lanes() * layout.nRanks() * PIPE_BYTES;
  }

  /** Writes the table, with all counts at their initial values. */
  static void write(Pipes pipes, DeviceBuffer target) {
    PipeLayout layout = pipes.layout;
    KernelStruct table = new KernelStruct(Math.toIntExact(bytes(layout)));
    for (int lane = 0; lane < layout.lanes(); lane++) {
      for (int peer = 0; peer < layout.nRanks(); peer++) {
        if (peer != pipes.peers.rank()) {
          writePipe(pipes, lane, peer, table, (lane * layout.nRanks() + peer) * PIPE_BYTES);
        }
      }
    }
    table.upload(target, 0);
  }

  private static void writePipe(Pipes pipes, int lane, int peer, KernelStruct table, int offset) {
    if (pipes.peers.isMapped(peer)) {
      table
          .at(offset)
          .put(pipes.semaphore(Pipes.FILLED, lane, peer))
          .put(pipes.semaphore(Pipes.EMPTIED, lane, peer));
    } else {
      ProxyChannel filled = pipes.channel(Pipes.FILLED, lane, peer);
      ProxyChannel emptied = pipes.channel(Pipes.EMPTIED, lane, peer);
      // Kernels wait for the semaphores in one place, whichever kind of channel signals them.
      table.at(offset).put(filled.semaphore()).put(emptied.semaphore()).put(filled).put(emptied);
    }
    int rank = pipes.peers.rank();
    table.at(offset + OUTBOX_OFFSET);
    table.putLong(pipes.outbox(lane, peer)).putLong(pipes.inbox(lane, peer));
    table.putLong(pipes.layout.outboxOffset(lane, rank, peer));
    table.putLong(pipes.layout.inboxOffset(lane, peer, rank));
    table.putLong(pipes.layout.slotBytes()).putLong(0).putLong(PipeLayout.SLOTS);
  }
}
