// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SLOTS;
import static io.fluxccl.collective.channel.PipeLayout.SLOTS_PER_CREDIT;

import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.collective.pipe.Pipe;

/**
 * A host-device pipe to a rank whose memory is not mapped. The sender fills a slot of its own
 * outbox, and the proxy copies it to the peer's inbox. The receiver sends a credit for every {@link
 * PipeLayout#SLOTS_PER_CREDIT} slots that it has released; with the credit the sender knows that
 * the slots have arrived, and may fill them again.
 */
final class ProxiedPipe implements Pipe {
  private final int slotBytes;
  private final ProxyChannelDeviceHandle data;
  private final ProxyChannelDeviceHandle credits;
  private final long outbox;
  private final long inbox;
  private final long outboxOffset;
  private final long remoteInboxOffset;
  private long sent;
  private long credited = SLOTS;
  private long taken;

  /** Creates one end of a lane's pipe to a peer. */
  ProxiedPipe(Pipes pipes, int lane, int peer) {
    PipeLayout layout = pipes.layout;
    int rank = pipes.peers.rank();
    this.slotBytes = layout.slotBytes();
    this.data = pipes.channel(Pipes.FILLED, lane, peer).deviceHandle();
    this.credits = pipes.channel(Pipes.EMPTIED, lane, peer).deviceHandle();
    this.outbox = pipes.outbox(lane, peer);
    this.inbox = pipes.inbox(lane, peer);
    this.outboxOffset = layout.outboxOffset(lane, rank, peer);
    this.remoteInboxOffset = layout.inboxOffset(lane, peer, rank);
  }

  private long at(long count) {
    return (count & (SLOTS - 1)) * slotBytes;
  }

  @Override
  public long claim() {
    while (sent == credited) {
      if (!credits.await()) {
        return 0;
      }
      credited += SLOTS_PER_CREDIT;
    }
    return outbox + at(sent);
  }

  @Override
  public void publish(long bytes) {
    if (bytes == 0) {
      data.signal();
    } else {
      data.putWithSignal(remoteInboxOffset + at(sent), outboxOffset + at(sent), bytes);
    }
    sent++;
  }

  @Override
  public long take() {
    return data.await() ? inbox + at(taken) : 0;
  }

  @Override
  public void release() {
    taken++;
    if (taken % SLOTS_PER_CREDIT == 0) {
      credits.signal();
    }
  }
}
