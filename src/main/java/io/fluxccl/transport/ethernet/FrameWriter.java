package io.fluxccl.transport.ethernet;

import io.fluxccl.TransportFailure;
import io.netty.channel.Channel;
import org.agrona.BufferUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Moves what was posted to the socket: small frames gathered in a batch, long payloads from the
 * users' memory in pieces, no more than the channel's water marks allow. From a write of memory
 * that sockets can't reach until the socket has it, all goes through the connection's {@link
 * StagedOutput}, except payloads that the socket can take in place: they wait until that is empty.
 * Called from the event loop.
 */
final class FrameWriter implements PostQueue.Sink {
  private static final int POSTS_AT_ONCE = 64;

  private final PostQueue queue;
  private final EthernetContext context;
  private final Channel channel;
  private final StagedOutput staged;
  private final UnsafeBuffer frame =
      new UnsafeBuffer(BufferUtil.allocateDirectAligned(FrameDescriptor.MEMORY_FRAME_LENGTH, 64));
  private MemoryWindow batch;
  private long payloadAddress;
  private long payloadRemaining;

  // The staged write under way.
  private boolean headerDue;
  private long memory;
  private long offset;
  private long source;
  private long sourceOffset;
  private long sourceRemaining;

  private boolean pumping;
  private boolean pumpAgain;

  /**
   * @param staged the way of memory that sockets can't reach, or null where there is no such memory
   */
  FrameWriter(PostQueue queue, EthernetContext context, Channel channel, StagedOutput staged) {
    this.queue = queue;
    this.context = context;
    this.channel = channel;
    this.staged = staged;
  }

  /** Whether all frames that were begun are in the kernel's hands. */
  boolean isBetweenFrames() {
    return payloadRemaining == 0
        && sourceRemaining == 0
        && isDirect()
        && channel.unsafe().outboundBuffer() != null
        && channel.unsafe().outboundBuffer().isEmpty();
  }

  /** Sends what is posted until there is no more or the socket is full. */
  void pump() {
    if (pumping) {
      // The channel tells of its writability from within write and flush.
      pumpAgain = true;
      return;
    }
    pumping = true;
    try {
      do {
        pumpAgain = false;
        fill();
        channel.flush();
      } while (pumpAgain && channel.isWritable());
    } finally {
      pumping = false;
    }
  }

  private void fill() {
    boolean more = channel.isWritable();
    while (more) {
      more = fillOnce();
      if (!more && staged != null) {
        staged.mark();
        // What was just handed over may have been what the rest waited for.
        more = staged.handOver(channel);
      }
      more &= channel.isWritable();
    }
    sendBatch();
  }

  private boolean fillOnce() {
    if (staged != null) {
      staged.handOver(channel);
    }
    if (payloadRemaining > 0) {
      return sendPiece();
    }
    if (sourceRemaining > 0) {
      return stagePiece();
    }
    return canTake() && queue.drain(this, POSTS_AT_ONCE) > 0;
  }

  /** Whether what comes next may take the direct way. */
  private boolean isDirect() {
    return staged == null || staged.isEmpty();
  }

  /** Whether there is room for a small frame. */
  private boolean canTake() {
    return isDirect() || staged.hasRoom();
  }

  @Override
  public boolean write(long memory, long offset, long address, long length) {
    int at = begin(FrameDescriptor.MEMORY_FRAME_LENGTH);
    end(at, FrameDescriptor.putWrite(out(), at, memory, offset, length));
    payloadAddress = address;
    payloadRemaining = length;
    return false;
  }

  @Override
  public boolean staged(long memory, long offset, long source, long sourceOffset, long length) {
    headerDue = true;
    this.memory = memory;
    this.offset = offset;
    this.source = source;
    this.sourceOffset = sourceOffset;
    this.sourceRemaining = length;
    return false;
  }

  @Override
  public boolean inline(long memory, long offset, DirectBuffer buffer, int index, int length) {
    int at = begin(FrameDescriptor.MEMORY_FRAME_LENGTH + length);
    end(at, FrameDescriptor.putWrite(out(), at, memory, offset, length));
    if (isDirect()) {
      batch.view().putBytes(batch.writerIndex(), buffer, index, length);
      batch.writerIndex(batch.writerIndex() + length);
    } else {
      staged.put(buffer, index, length);
    }
    return canTake();
  }

  @Override
  public boolean update(long memory, long offset, long value) {
    int at = begin(FrameDescriptor.MEMORY_FRAME_LENGTH);
    end(at, FrameDescriptor.putUpdate(out(), at, memory, offset, value));
    return canTake();
  }

  @Override
  public boolean flush(long ticket) {
    int at = begin(FrameDescriptor.TICKET_FRAME_LENGTH);
    end(at, FrameDescriptor.putFlush(out(), at, ticket));
    return canTake();
  }

  /** Sends the last frame. */
  void goodbye() {
    MemoryWindow out = room(FrameDescriptor.HEADER_LENGTH);
    int at = out.writerIndex();
    out.writerIndex(at + FrameDescriptor.putGoodbye(out.view(), at));
    sendBatch();
    channel.flush();
  }

  /** Where a frame is put: in the batch, or on its way to the staged bytes. */
  private UnsafeBuffer out() {
    return isDirect() ? batch.view() : frame;
  }

  private int begin(int length) {
    return isDirect() ? room(length).writerIndex() : 0;
  }

  private void end(int at, int length) {
    if (isDirect()) {
      batch.writerIndex(at + length);
    } else {
      staged.put(frame, 0, length);
    }
  }

  private boolean sendPiece() {
    if (!isDirect()) {
      return false;
    }
    sendBatch();
    int length = (int) Math.min(payloadRemaining, MemoryWindow.MAX_LENGTH);
    MemoryWindow piece = context.pool().window(payloadAddress, length);
    payloadAddress += length;
    payloadRemaining -= length;
    channel.write(piece, channel.voidPromise());
    return true;
  }

  /** Has the device copy the next piece; false when there is no room, or no more for now. */
  private boolean stagePiece() {
    // What is in the batch was posted before.
    sendBatch();
    if (headerDue) {
      if (!staged.hasRoom() || !staged.beginCopies()) {
        return false;
      }
      headerDue = false;
      FrameDescriptor.putWrite(frame, 0, memory, offset, sourceRemaining);
      staged.put(frame, 0, FrameDescriptor.MEMORY_FRAME_LENGTH);
    }
    OwnedMemory from = context.memories().get(source);
    if (from == null || !from.beginUse()) {
      throw new TransportFailure(
          context.rank(), "source memory was closed before what was posted of it had been sent");
    }
    int length;
    try {
      length = staged.copy(from, sourceOffset, sourceRemaining);
    } finally {
      from.endUse();
    }
    sourceOffset += length;
    sourceRemaining -= length;
    return length > 0;
  }

  private MemoryWindow room(int length) {
    if (batch != null && batch.writableBytes() < length) {
      sendBatch();
    }
    if (batch == null) {
      batch = context.pool().batch();
    }
    return batch;
  }

  private void sendBatch() {
    MemoryWindow full = batch;
    if (full != null) {
      batch = null;
      channel.write(full, channel.voidPromise());
    }
  }
}
