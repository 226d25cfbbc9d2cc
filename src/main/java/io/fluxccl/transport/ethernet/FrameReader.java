package io.fluxccl.transport.ethernet;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Reads one socket: first the handshake, then frames. Bytes go to a small staging buffer, except
 * that a subclass may have a payload read straight to where it belongs. Called from the event loop.
 */
abstract class FrameReader extends ChannelInboundHandlerAdapter implements FrameSink {
  /** Shorter rests of a payload are staged: one read then takes the frames that follow too. */
  private static final int MIN_DIRECT_READ = 4096;

  private final FrameDecoder decoder = new FrameDecoder();
  private final MemoryWindow window = new MemoryWindow(released -> endDirectRead());
  private final int handshakeLength;
  private final int stagingLength;
  private UnsafeBuffer staging;
  private int staged;
  private boolean direct;
  private boolean greeted;
  private boolean discarding;
  private boolean paused;

  /**
   * @param handshakeLength bytes that come before the first frame
   * @param stagingLength bytes of the staging buffer after the handshake
   */
  FrameReader(int handshakeLength, int stagingLength) {
    this.handshakeLength = handshakeLength;
    this.stagingLength = stagingLength;
    // One byte more than the handshake, to see that a peer sent too much.
    this.staging = allocate(handshakeLength + 1);
  }

  /** Makes the channel read where this reader says. */
  final DirectReads reads() {
    return new DirectReads(this::nextRead, this::isPaused);
  }

  /**
   * The handshake is there.
   *
   * @param excess whether more bytes came with it
   * @return false to drop all that follows
   */
  abstract boolean onHandshake(DirectBuffer handshake, boolean excess);

  /** The stream is broken; everything that follows is dropped. */
  abstract void onViolation(ProtocolViolation violation);

  /**
   * Points the window at where the next bytes of the payload may be read to, or returns false to
   * stage them. A subclass that points it is told by {@link #endDirectRead()} when the read is
   * over.
   *
   * @param wanted how many bytes are to come
   */
  boolean beginDirectRead(MemoryWindow target, long wanted) {
    return false;
  }

  /** Records that a read is done. Also called after reads to the staging buffer. */
  void endDirectRead() {}

  /** So many bytes were read to where {@link #beginDirectRead} said. */
  void onDirectRead(int length) {}

  /** Reads no more until {@link #resume}: a method of the sink is about to refuse what came. */
  void pause() {
    paused = true;
  }

  /** Offers again what was refused; afterwards it may be paused anew. */
  void resume() {
    paused = false;
    if (!discarding) {
      try {
        decode(0);
      } catch (ProtocolViolation violation) {
        discard();
        onViolation(violation);
      }
    }
  }

  final boolean isPaused() {
    return paused;
  }

  private ByteBuf nextRead() {
    direct =
        greeted
            && !discarding
            && !paused
            && staged == 0
            && decoder.payloadRemaining() >= MIN_DIRECT_READ
            && beginDirectRead(window, decoder.payloadRemaining());
    if (direct) {
      return window;
    }
    if (staged == staging.capacity()) {
      // Paused, and the peer has gone: what it left in the socket, and no more, is read all the
      // same.
      moveStaging(2 * staging.capacity(), 0);
    }
    return window.point(staging.addressOffset() + staged, staging.capacity() - staged);
  }

  @Override
  public final void channelRead(ChannelHandlerContext context, Object message) {
    ByteBuf bytes = (ByteBuf) message;
    int length = bytes.readableBytes();
    boolean wasDirect = direct;
    bytes.release();
    if (discarding) {
      return;
    }
    try {
      if (wasDirect) {
        decoder.payloadTaken(length);
        onDirectRead(length);
      } else {
        staged += length;
        onStaged();
      }
    } catch (ProtocolViolation violation) {
      discard();
      onViolation(violation);
    } catch (RuntimeException e) {
      discard();
      throw e;
    }
  }

  private void onStaged() {
    int offset = 0;
    if (!greeted) {
      if (staged < handshakeLength) {
        return;
      }
      boolean accepted = onHandshake(staging, staged > handshakeLength);
      if (!accepted) {
        discard();
        return;
      }
      greeted = true;
      offset = handshakeLength;
    }
    decode(offset);
  }

  private void decode(int offset) {
    int used = offset + decoder.decode(staging, offset, staged, this);
    int rest = staged - used;
    if (staging.capacity() < stagingLength) {
      moveStaging(stagingLength, used);
    } else if (rest > 0 && used > 0) {
      staging.putBytes(0, staging, used, rest);
    }
    staged = rest;
  }

  private void moveStaging(int length, int from) {
    UnsafeBuffer next = allocate(length);
    next.putBytes(0, staging, from, staged - from);
    staging = next;
  }

  private void discard() {
    discarding = true;
    staged = 0;
  }

  private static UnsafeBuffer allocate(int length) {
    ByteBuffer memory = BufferUtil.allocateDirectAligned(length, 64);
    return new UnsafeBuffer(memory);
  }
}
