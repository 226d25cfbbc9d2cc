// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SLOTS;
import static io.fluxccl.collective.channel.PipeLayout.SLOTS_PER_CREDIT;

import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;
import java.util.function.IntConsumer;

/**
 * A host-device pipe to a rank whose memory is not mapped. The sender fills a slot of its own
 * outbox, and the proxy copies it to the peer's inbox. The receiver sends a credit for every {@link
 * PipeLayout#SLOTS_PER_CREDIT} slots that it has released; with the credit the sender knows that
 * the slots have arrived, and may fill them again.
 *
 * <p>A slot is as in {@link SlotRing}: the signature of the message's call is in front of its
 * payload, and one put carries both.
 */
final class ProxiedPipe implements Pipe {
  private static final int SIGNATURE_OFFSET = SlotRing.PAYLOAD_OFFSET - Long.BYTES;

  private final int peer;
  private final long abortAddress;
  private final IntConsumer onOtherCall;
  private final int slotBytes;
  private final ProxyChannelDeviceHandle data;
  private final ProxyChannelDeviceHandle credits;
  private final long outbox;
  private final long inbox;
  private final long outboxOffset;
  private final long remoteInboxOffset;
  private long signature;
  private long expected;
  private long sent;
  private long credited = SLOTS;
  private long taken;

  /** Creates one end of a lane's pipe to a peer. */
  ProxiedPipe(Pipes pipes, int lane, int peer) {
    PipeLayout layout = pipes.layout;
    int rank = pipes.peers.rank();
    this.peer = peer;
    this.abortAddress = pipes.peers.communicator().abortFlag().deviceAddress();
    this.onOtherCall = pipes.peers::receivedOtherCall;
    this.slotBytes = SlotRing.PAYLOAD_OFFSET + layout.slotBytes(rank, peer);
    this.data = pipes.channel(Pipes.FILLED, lane, peer).deviceHandle();
    this.credits = pipes.channel(Pipes.EMPTIED, lane, peer).deviceHandle();
    this.outbox = pipes.outbox(lane, peer);
    this.inbox = pipes.inbox(lane, peer);
    this.outboxOffset = layout.outboxOffset(lane, rank, peer);
    this.remoteInboxOffset = layout.inboxOffset(lane, peer, rank);
  }

  @Override
  public void begin(int sentSignature, int expectedSignature) {
    signature = sentSignature;
    expected = expectedSignature;
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
    return outbox + at(sent) + SlotRing.PAYLOAD_OFFSET;
  }

  @Override
  public void publish(long bytes) {
    long at = at(sent) + SIGNATURE_OFFSET;
    HostMemory.putLong(outbox + at, signature);
    data.putWithSignal(remoteInboxOffset + at, outboxOffset + at, Long.BYTES + bytes);
    sent++;
  }

  @Override
  public long take() {
    if (!data.await()) {
      return 0;
    }
    long slot = inbox + at(taken);
    if (HostMemory.getLong(slot + SIGNATURE_OFFSET) == expected) {
      return slot + SlotRing.PAYLOAD_OFFSET;
    }
    onOtherCall.accept(peer);
    int step = 0;
    while (step != SpinWait.ABORTED) {
      step = SpinWait.step(step, abortAddress, peer);
    }
    return 0;
  }

  @Override
  public void release() {
    taken++;
    if (taken % SLOTS_PER_CREDIT == 0) {
      credits.signal();
    }
  }
}
