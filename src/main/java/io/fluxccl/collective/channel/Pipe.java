package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SLOTS;
import static io.fluxccl.collective.channel.PipeLayout.SLOTS_PER_CREDIT;

import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.semaphore.SemaphoreDeviceHandle;

/**
 * One lane's way to one other rank and back, on the host device: pieces go through rings of slots.
 * A sender claims a slot, fills it and publishes it; the receiver takes pieces in that order and
 * releases them, which after some brings the sender a credit for so many slots more. Where the
 * peer's memory is mapped the slot is the peer's own; otherwise it is one of this rank's, which the
 * proxy sends, and which may be filled again when its credit is there, for then it has arrived.
 *
 * <p>Used by one kernel thread at a time. Counts go on from launch to launch.
 */
final class Pipe {
  private final int slotBytes;
  private final SemaphoreDeviceHandle filled;
  private final SemaphoreDeviceHandle emptied;

  /** Null where memory is mapped. */
  private final ProxyChannelDeviceHandle filling;

  private final ProxyChannelDeviceHandle emptying;
  private final long outbox;
  private final long inbox;
  private final long outboxOffset;
  private final long remoteInboxOffset;
  private long sent;
  private long credited = SLOTS;
  private long taken;

  Pipe(
      int slotBytes,
      SemaphoreDeviceHandle filled,
      SemaphoreDeviceHandle emptied,
      ProxyChannelDeviceHandle filling,
      ProxyChannelDeviceHandle emptying,
      long outbox,
      long inbox,
      long outboxOffset,
      long remoteInboxOffset) {
    this.slotBytes = slotBytes;
    this.filled = filled;
    this.emptied = emptied;
    this.filling = filling;
    this.emptying = emptying;
    this.outbox = outbox;
    this.inbox = inbox;
    this.outboxOffset = outboxOffset;
    this.remoteInboxOffset = remoteInboxOffset;
  }

  private long at(long count) {
    return (count & (SLOTS - 1)) * slotBytes;
  }

  /** The address of a slot to fill; 0 if the communicator was aborted. */
  long claim() {
    while (sent == credited) {
      if (!await(emptied, emptying)) {
        return 0;
      }
      credited += SLOTS_PER_CREDIT;
    }
    return outbox + at(sent);
  }

  /** Sends the claimed slot's first bytes, 0 or more. */
  void publish(long bytes) {
    if (filling == null) {
      filled.signal();
    } else if (bytes == 0) {
      filling.signal();
    } else {
      filling.putWithSignal(remoteInboxOffset + at(sent), outboxOffset + at(sent), bytes);
    }
    sent++;
  }

  /** Waits for the next piece and gives its address; 0 if the communicator was aborted. */
  long take() {
    return await(filled, filling) ? inbox + at(taken) : 0;
  }

  private static boolean await(SemaphoreDeviceHandle semaphore, ProxyChannelDeviceHandle channel) {
    return channel == null ? semaphore.await() : channel.await();
  }

  /** Gives the piece's slot back. */
  void release() {
    taken++;
    if (taken % SLOTS_PER_CREDIT == 0) {
      if (emptying == null) {
        emptied.signal();
      } else {
        emptying.signal();
      }
    }
  }
}
