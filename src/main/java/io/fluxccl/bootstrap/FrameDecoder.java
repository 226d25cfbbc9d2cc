package io.fluxccl.bootstrap;

import io.fluxccl.TransportFailure;
import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import java.util.List;

/**
 * Cuts a socket's bytes into frames. A length over the limit, which is small until the other side
 * has proved itself, is refused before anything is allocated for it.
 */
final class FrameDecoder extends ByteToMessageDecoder {
  static final String NAME = "frames";

  private int limit = BootstrapFrameCodec.HANDSHAKE_LIMIT;
  private boolean broken;

  /** Allows longer frames; called on the event loop once the other side is trusted. */
  void raiseLimit(int newLimit) {
    limit = newLimit;
  }

  @Override
  protected void decode(ChannelHandlerContext ctx, ByteBuf in, List<Object> out) {
    if (broken) {
      in.skipBytes(in.readableBytes());
      return;
    }
    if (in.readableBytes() < BootstrapFrameCodec.LENGTH_BYTES) {
      return;
    }
    int length = in.getInt(in.readerIndex());
    if (length < 1 || length > limit) {
      broken = true;
      in.skipBytes(in.readableBytes());
      throw BootstrapFrameCodec.malformed("length=" + length + ", limit=" + limit);
    }
    if (in.readableBytes() < BootstrapFrameCodec.LENGTH_BYTES + length) {
      return;
    }
    in.skipBytes(BootstrapFrameCodec.LENGTH_BYTES);
    try {
      out.add(BootstrapFrameCodec.decode(in.readSlice(length)));
    } catch (TransportFailure e) {
      broken = true;
      in.skipBytes(in.readableBytes());
      throw e;
    }
  }
}
