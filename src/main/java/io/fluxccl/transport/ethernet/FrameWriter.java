package io.fluxccl.transport.ethernet;

import io.netty.channel.Channel;
import org.agrona.DirectBuffer;

/**
 * Moves what was posted to the socket: small frames gathered in a batch, long payloads from the
 * users' memory in pieces, no more than the channel's water marks allow. Called from the event
 * loop.
 */
final class FrameWriter implements PostQueue.Sink {
  private static final int POSTS_AT_ONCE = 64;

  private final PostQueue queue;
  private final WindowPool pool;
  private final Channel channel;
  private MemoryWindow batch;
  private long payloadAddress;
  private long payloadRemaining;
  private boolean pumping;
  private boolean pumpAgain;

  FrameWriter(PostQueue queue, WindowPool pool, Channel channel) {
    this.queue = queue;
    this.pool = pool;
    this.channel = channel;
  }

  /** Whether all frames that were begun are in the kernel's hands. */
  boolean isBetweenFrames() {
    return payloadRemaining == 0
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
    while (channel.isWritable()) {
      if (payloadRemaining > 0) {
        sendPiece();
      } else if (queue.drain(this, POSTS_AT_ONCE) == 0) {
        break;
      }
    }
    sendBatch();
  }

  @Override
  public boolean write(long memory, long offset, long address, long length) {
    MemoryWindow out = room(FrameDescriptor.MEMORY_FRAME_LENGTH);
    int at = out.writerIndex();
    out.writerIndex(at + FrameDescriptor.putWrite(out.view(), at, memory, offset, length));
    payloadAddress = address;
    payloadRemaining = length;
    return false;
  }

  @Override
  public void inline(long memory, long offset, DirectBuffer buffer, int index, int length) {
    MemoryWindow out = room(FrameDescriptor.MEMORY_FRAME_LENGTH + length);
    int at = out.writerIndex();
    at += FrameDescriptor.putWrite(out.view(), at, memory, offset, length);
    out.view().putBytes(at, buffer, index, length);
    out.writerIndex(at + length);
  }

  @Override
  public void update(long memory, long offset, long value) {
    MemoryWindow out = room(FrameDescriptor.MEMORY_FRAME_LENGTH);
    int at = out.writerIndex();
    out.writerIndex(at + FrameDescriptor.putUpdate(out.view(), at, memory, offset, value));
  }

  @Override
  public void flush(long ticket) {
    MemoryWindow out = room(FrameDescriptor.TICKET_FRAME_LENGTH);
    int at = out.writerIndex();
    out.writerIndex(at + FrameDescriptor.putFlush(out.view(), at, ticket));
  }

  /** Sends the last frame. */
  void goodbye() {
    MemoryWindow out = room(FrameDescriptor.HEADER_LENGTH);
    int at = out.writerIndex();
    out.writerIndex(at + FrameDescriptor.putGoodbye(out.view(), at));
    sendBatch();
    channel.flush();
  }

  private void sendPiece() {
    sendBatch();
    int length = (int) Math.min(payloadRemaining, MemoryWindow.MAX_LENGTH);
    MemoryWindow piece = pool.window(payloadAddress, length);
    payloadAddress += length;
    payloadRemaining -= length;
    channel.write(piece, channel.voidPromise());
  }

  private MemoryWindow room(int length) {
    if (batch != null && batch.writableBytes() < length) {
      sendBatch();
    }
    if (batch == null) {
      batch = pool.batch();
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
