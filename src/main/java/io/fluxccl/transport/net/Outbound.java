// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.PostQueue;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.LongConsumer;
import org.agrona.BufferUtil;
import org.agrona.CloseHelper;

/**
 * Turns posts into messages. A short write or a signal becomes one control message. A longer write
 * is split into parts: each has a control message, and its bytes go to the next rail in turn.
 * Confined to the agent; allocates nothing in steady state.
 */
final class Outbound {
  /**
   * The length of a part in bytes. It is short enough to spread a write over rails and to let the
   * receiver proceed.
   */
  private static final long PART = 1 << 20;

  private static final int MESSAGES_AT_A_TIME = 64;

  private final PostQueue<NetMemoryHandle> queue;
  private final ControlSender control;

  /**
   * True if the bytes of long writes are the bodies of control messages. Then there is one rail.
   */
  private final boolean bodies;

  private final DataSender[] rails;
  private final long maxPart;

  /** The values of signals in flight on rail 0, one word for each of its slots. */
  private final ByteBuffer signals;

  private final NetMemory signalsRegistration;
  private final LongConsumer asked;

  private int nextRail;

  /** The number of bytes of the oldest write that were put. */
  private long progress;

  /** True if the oldest post found no room; a confirmation or a ready socket makes room. */
  private boolean full;

  private long acknowledged;
  private long toAcknowledge;

  /**
   * Creates the sending side of a connection.
   *
   * @param maxBytes the length in bytes of the longest message that both ends accept
   * @param checksums whether messages have checksums
   * @param staging null if the network can access all memory of this rank
   * @param asked receives the ticket of each flush that is requested from the peer
   */
  Outbound(
      PostQueue<NetMemoryHandle> queue,
      Links links,
      int capacity,
      long maxBytes,
      boolean checksums,
      Staging staging,
      LongConsumer asked) {
    this.queue = queue;
    this.asked = asked;
    this.bodies = links.rails() == 0;
    this.rails = new DataSender[Math.max(1, links.rails())];
    this.maxPart = Math.min(PART, maxBytes);
    this.signals = BufferUtil.allocateDirectAligned(capacity * Long.BYTES, Long.BYTES);
    try {
      for (int i = 0; i < rails.length; i++) {
        rails[i] =
            bodies
                ? new DataSender(null, ControlSender.CONFIRMED_BODIES, staging)
                : new DataSender(links.senders[i + 1], capacity, staging);
      }
      this.control =
          new ControlSender(links.senders[0], capacity, bodies ? rails[0] : null, checksums);
      this.signalsRegistration =
          bodies
              ? null
              : links.senders[1].register(
                  BufferUtil.address(signals), signals.capacity(), PointerType.HOST);
    } catch (Throwable e) {
      CloseHelper.quietClose(this::abandon);
      throw e;
    }
  }

  /**
   * Acknowledges a flush of the peer with the next control message: everything before it is in
   * place.
   */
  void acknowledge(long ticket) {
    toAcknowledge = ticket;
  }

  /**
   * Advances posts and messages, and returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  int progress(long received) {
    int work = putAcknowledgement() + putPosts();
    return work + control.progress(received) + progressRails();
  }

  private int putPosts() {
    int put = 0;
    while (put < MESSAGES_AT_A_TIME && control.hasRoom() && putNext()) {
      put++;
    }
    full = put == 0 && queue.type() != PostQueue.NONE;
    return put;
  }

  /** Returns whether the queue takes the oldest post. If not, later posts wait as well. */
  boolean takesPosts() {
    return !full;
  }

  private int progressRails() {
    if (bodies) {
      return 0;
    }
    int work = 0;
    for (DataSender rail : rails) {
      work += rail.progress();
    }
    return work;
  }

  /**
   * Advances messages that were put, and acknowledgements, but not posts. Returns the work count.
   *
   * @param received the number of messages of the peer that have arrived in full
   */
  int progressControl(long received) {
    return putAcknowledgement() + control.progress(received);
  }

  /** Returns the sender of the messages. */
  ControlSender control() {
    return control;
  }

  private int putAcknowledgement() {
    if (toAcknowledge == acknowledged || !control.hasRoom()) {
      return 0;
    }
    acknowledged = toAcknowledge;
    control.put(ControlMessage.ACK, 0, 0, 0, acknowledged, 0);
    return 1;
  }

  /** Returns whether no control message or acknowledgement is in flight. */
  boolean isControlIdle() {
    return toAcknowledge == acknowledged && control.isIdle();
  }

  private boolean putNext() {
    int type = queue.type();
    if (type == PostQueue.WRITE) {
      return putWrite(queue.target(), (OwnedMemory) queue.source());
    }
    if (type == PostQueue.UPDATE) {
      return putUpdate(queue.target());
    }
    if (type == PostQueue.FLUSH) {
      asked.accept(queue.targetOffset());
      control.put(ControlMessage.FLUSH, 0, 0, 0, queue.targetOffset(), 0);
      queue.pop();
      return true;
    }
    return false;
  }

  private boolean putWrite(NetMemoryHandle target, OwnedMemory source) {
    long left = queue.length() - progress;
    long targetOffset = queue.targetOffset() + progress;
    long sourceOffset = queue.sourceOffset() + progress;
    boolean isStored = target.isOnHost() || target.isStaged();
    if (queue.length() <= ControlMessage.INLINE_LIMIT && isStored && source.isOnHost()) {
      int bytes = (int) left;
      HostMemory.copy(control.payloadAddress(), source.address() + sourceOffset, bytes);
      control.put(ControlMessage.INLINE, 0, target.id(), targetOffset, bytes, bytes);
      queue.pop();
      source.release();
      return true;
    }
    DataSender rail = rails[nextRail];
    if (!rail.hasRoom()) {
      return false;
    }
    boolean staged = source.isStaged() || target.isStaged();
    int length =
        (int)
            Math.min(
                Math.min(left, staged ? Math.min(maxPart, StagingSlots.SLOT_BYTES) : maxPart),
                Math.min(
                    CommMemory.untilNextPiece(targetOffset),
                    CommMemory.untilNextPiece(sourceOffset)));
    int place = rail.nextPlace();
    // The queue keeps its use of the source until the rail takes it over: registration may fail.
    rail.put(source, sourceOffset, length);
    if (length == left) {
      queue.pop();
      progress = 0;
    } else {
      progress += length;
      source.retain();
    }
    control.put(ControlMessage.DATA, nextRail, target.id(), targetOffset, length, 0);
    if (bodies) {
      control.attach(place);
    }
    nextRail = (nextRail + 1) % rails.length;
    return true;
  }

  private boolean putUpdate(NetMemoryHandle target) {
    long value = queue.sourceOffset();
    if (target.isOnHost() || target.isStaged()) {
      control.put(ControlMessage.UPDATE, 0, target.id(), queue.targetOffset(), value, 0);
      queue.pop();
      return true;
    }
    if (!rails[0].hasRoom()) {
      return false;
    }
    long place = BufferUtil.address(signals) + (long) rails[0].nextPlace() * Long.BYTES;
    HostMemory.putLong(place, value);
    rails[0].put(signalsRegistration, place, Long.BYTES);
    control.put(ControlMessage.UPDATE_DATA, 0, target.id(), queue.targetOffset(), Long.BYTES, 0);
    queue.pop();
    return true;
  }

  /** Puts a final message. Returns false if there is no room for it now. */
  boolean putFarewell(int type, String text) {
    if (!control.hasRoom()) {
      return false;
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int length = Math.min(bytes.length, ControlMessage.INLINE_LIMIT);
    long address = control.payloadAddress();
    for (int i = 0; i < length; i++) {
      HostMemory.fill(address + i, 1, bytes[i]);
    }
    control.put(type, 0, 0, 0, length, length);
    return true;
  }

  /** Returns whether the device is still copying to or from staged memory. */
  boolean isCopying() {
    for (DataSender rail : rails) {
      if (rail.isCopying()) {
        return true;
      }
    }
    return false;
  }

  void forget(OwnedMemory memory) {
    Closing.all(
        Arrays.stream(rails).<AutoCloseable>map(rail -> () -> rail.forget(memory)).toList());
  }

  /** Releases all memories. Called after all comms are closed, when nothing is in flight. */
  void abandon() {
    Closing.all(
        Arrays.stream(rails)
            .filter(rail -> rail != null)
            .<AutoCloseable>map(rail -> rail::abandon)
            .toList());
  }
}
