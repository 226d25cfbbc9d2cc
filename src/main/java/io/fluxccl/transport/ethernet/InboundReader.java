package io.fluxccl.transport.ethernet;

import io.fluxccl.ErrorCode;
import io.fluxccl.device.host.HostMemory;
import io.netty.channel.ChannelHandlerContext;
import io.netty.util.concurrent.ScheduledFuture;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The accepting side of a socket: admits whoever shows the token of an end that waits here, then
 * places what it writes. Trusts nothing: ids, offsets and lengths are checked against this rank's
 * own table before a byte is placed. Called from the event loop.
 */
final class InboundReader extends FrameReader {
  /** How long a hello may take, and how long a refused peer may take to hang up. */
  static final Duration PATIENCE = Duration.ofSeconds(2);

  private static final Logger LOG = LoggerFactory.getLogger(InboundReader.class);
  private static final int STAGING_LENGTH = 64 * 1024;

  private final EthernetContext context;
  private ChannelHandlerContext channel;
  private ScheduledFuture<?> patience;
  private EthernetConnection connection;
  private OwnedMemory target;
  private long targetOffset;
  private OwnedMemory beingRead;
  private long pendingAck;
  private boolean goodbye;

  InboundReader(EthernetContext context) {
    super(HandshakeDescriptor.HELLO_LENGTH, STAGING_LENGTH);
    this.context = context;
  }

  @Override
  public void channelActive(ChannelHandlerContext active) {
    channel = active;
    hangUpAfterPatience();
  }

  @Override
  boolean onHandshake(DirectBuffer hello, boolean excess) {
    if (!excess && HandshakeDescriptor.isHello(hello)) {
      connection =
          context.claim(
              HandshakeDescriptor.helloToken(hello),
              HandshakeDescriptor.helloRank(hello),
              HandshakeDescriptor.helloTag(hello));
    }
    if (connection == null) {
      LOG.warn(
          "rank {} refuses {}: its hello names no end that waits here",
          context.rank(),
          channel.channel().remoteAddress());
      channel.close();
      return false;
    }
    patience.cancel(false);
    MemoryWindow out = context.pool().batch();
    out.writerIndex(HandshakeDescriptor.putWelcome(out.view()));
    channel.writeAndFlush(out, channel.voidPromise());
    connection.incomingUp(this);
    return true;
  }

  @Override
  public void onWrite(long memory, long offset, long length) {
    target = checked("write", memory, offset, length);
    targetOffset = offset;
  }

  @Override
  public void onPayload(DirectBuffer buffer, int index, int length) {
    hold(target, "write");
    try {
      HostMemory.copy(target.address() + targetOffset, buffer.addressOffset() + index, length);
    } finally {
      target.endPlacement();
    }
    targetOffset += length;
  }

  @Override
  long beginDirectRead() {
    if (!target.beginPlacement()) {
      // Staged instead, and refused as soon as there is a byte to place.
      return 0;
    }
    beingRead = target;
    return target.address() + targetOffset;
  }

  @Override
  void endDirectRead() {
    OwnedMemory memory = beingRead;
    if (memory != null) {
      beingRead = null;
      memory.endPlacement();
    }
  }

  @Override
  void onDirectRead(int length) {
    targetOffset += length;
  }

  @Override
  public void onUpdate(long memory, long offset, long value) {
    OwnedMemory counter = checked("update", memory, offset, Long.BYTES);
    if (((counter.address() + offset) & (Long.BYTES - 1)) != 0) {
      throw new ProtocolViolation("an update at offset=" + offset + ", no multiple of 8");
    }
    hold(counter, "update");
    try {
      // Release: all payload placed before on this thread is visible to whoever loads the counter
      // with HostMemory.getLongAcquire, as a semaphore's wait does.
      HostMemory.putLongRelease(counter.address() + offset, value);
    } finally {
      counter.endPlacement();
    }
  }

  @Override
  public void onFlush(long ticket) {
    pendingAck = Math.max(pendingAck, ticket);
  }

  @Override
  public void onGoodbye() {
    goodbye = true;
    connection.peerLeaves();
  }

  @Override
  void onViolation(ProtocolViolation violation) {
    String message = "rank " + connection.remoteRank() + " sent " + violation.getMessage();
    LOG.warn("rank {} ends {}: {}", context.rank(), connection, message);
    MemoryWindow out = context.pool().batch();
    out.writerIndex(FrameDescriptor.putError(out.view(), 0, ErrorCode.TRANSPORT_FAILURE, message));
    channel.writeAndFlush(out, channel.voidPromise());
    // The socket stays until the peer has read the error: closing it with unread bytes could take
    // the error back.
    hangUpAfterPatience();
    connection.peerMisbehaved(message);
  }

  @Override
  public void channelReadComplete(ChannelHandlerContext active) {
    acknowledge();
    active.fireChannelReadComplete();
  }

  @Override
  public void channelWritabilityChanged(ChannelHandlerContext active) {
    acknowledge();
    active.fireChannelWritabilityChanged();
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext active, Throwable cause) {
    ended(cause);
    active.close();
  }

  @Override
  public void channelInactive(ChannelHandlerContext active) {
    if (patience != null) {
      patience.cancel(false);
    }
    ended(null);
    active.fireChannelInactive();
  }

  /** Closes the socket, with a goodbye where that is asked and can be said. */
  void close(boolean inOrder) {
    if (inOrder && channel.channel().isActive()) {
      acknowledge();
      MemoryWindow out = context.pool().batch();
      out.writerIndex(FrameDescriptor.putGoodbye(out.view(), 0));
      channel.writeAndFlush(out, channel.voidPromise());
    }
    channel.close();
  }

  /**
   * Acknowledges the latest flush; one answer stands for all before it. Not while the peer leaves
   * earlier answers unread, so that what waits for it here stays small.
   */
  private void acknowledge() {
    if (pendingAck != 0 && channel.channel().isWritable()) {
      MemoryWindow out = context.pool().batch();
      out.writerIndex(FrameDescriptor.putAck(out.view(), 0, pendingAck));
      pendingAck = 0;
      channel.writeAndFlush(out, channel.voidPromise());
    }
  }

  private OwnedMemory checked(String what, long memory, long offset, long length) {
    OwnedMemory owned = context.memories().get(memory);
    if (owned == null) {
      throw new ProtocolViolation(
          "a "
              + what
              + " to memory that is not, or no longer, registered with rank "
              + context.rank());
    }
    if (!owned.contains(offset, length)) {
      throw new ProtocolViolation(
          "a "
              + what
              + " at offset="
              + offset
              + " length="
              + length
              + " outside the "
              + owned.size()
              + " bytes that rank "
              + context.rank()
              + " registered");
    }
    return owned;
  }

  private void hold(OwnedMemory memory, String what) {
    if (!memory.beginPlacement()) {
      throw new ProtocolViolation(
          "a " + what + " to memory that rank " + context.rank() + " no longer has registered");
    }
  }

  private void hangUpAfterPatience() {
    patience =
        channel
            .executor()
            .schedule(() -> channel.close(), PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
  }

  private void ended(Throwable cause) {
    if (connection != null && !goodbye) {
      connection.socketEnded(cause);
    }
  }
}
