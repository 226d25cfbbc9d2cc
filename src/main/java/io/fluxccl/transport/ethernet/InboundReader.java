package io.fluxccl.transport.ethernet;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
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
 * own table before a byte is placed. What belongs in memory that sockets can't reach goes through
 * the context's {@link StagedInput}; what belongs in other memory waits until that has done what
 * came before. Called from the event loop.
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

  private final StagedInput input;
  private final AwaitedFlushes flushes = new AwaitedFlushes();

  /** Where in {@link #input} the last that came on this socket ends. */
  private long stagedUpTo;

  /** While this is paused: where the copies must have come for it to go on. */
  private long pausedUntil;

  private boolean endedWhilePaused;

  InboundReader(EthernetContext context) {
    super(HandshakeDescriptor.HELLO_LENGTH, STAGING_LENGTH);
    this.context = context;
    this.input = context.staging() == null ? null : context.staging().input();
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
  public boolean onWrite(long memory, long offset, long length) {
    OwnedMemory written = checked("write", memory, offset, length);
    if (!written.isStaged() && mustWait()) {
      return false;
    }
    target = written;
    targetOffset = offset;
    return true;
  }

  @Override
  public int onPayload(DirectBuffer buffer, int index, int length) {
    int placed = length;
    hold(target, "write");
    try {
      if (target.isStaged()) {
        placed = input.place(target, targetOffset, buffer, index, length);
        stagedUpTo = input.position();
      } else {
        HostMemory.copy(target.address() + targetOffset, buffer.addressOffset() + index, length);
      }
    } finally {
      target.endUse();
    }
    targetOffset += placed;
    if (placed < length) {
      pauseUntil(input.halfFree());
    }
    return placed;
  }

  @Override
  boolean beginDirectRead(MemoryWindow window, long wanted) {
    if (target.isStaged()) {
      return input.point(window, wanted);
    }
    if (!target.beginUse()) {
      // Staged instead, and refused as soon as there is a byte to place.
      return false;
    }
    beingRead = target;
    window.point(target.address() + targetOffset, (int) Math.min(wanted, MemoryWindow.MAX_LENGTH));
    return true;
  }

  @Override
  void endDirectRead() {
    OwnedMemory memory = beingRead;
    if (memory != null) {
      beingRead = null;
      memory.endUse();
    }
  }

  @Override
  void onDirectRead(int length) {
    if (target.isStaged()) {
      hold(target, "write");
      try {
        input.place(target, targetOffset, length);
        stagedUpTo = input.position();
      } finally {
        target.endUse();
      }
    }
    targetOffset += length;
  }

  @Override
  public boolean onUpdate(long memory, long offset, long value) {
    OwnedMemory counter = checked("update", memory, offset, Long.BYTES);
    if (!counter.isStaged() && mustWait()) {
      return false;
    }
    if (((counter.address() + offset) & (Long.BYTES - 1)) != 0) {
      throw new ProtocolViolation("an update at offset=" + offset + ", no multiple of 8");
    }
    hold(counter, "update");
    try {
      if (counter.isStaged()) {
        return updateStaged(counter, offset, value);
      }
      // Release: all payload placed before on this thread is visible to whoever loads the counter
      // with HostMemory.getLongAcquire, as a semaphore's wait does.
      HostMemory.putLongRelease(counter.address() + offset, value);
    } finally {
      counter.endUse();
    }
    return true;
  }

  private boolean updateStaged(OwnedMemory counter, long offset, long value) {
    boolean placed = input.update(counter, offset, value);
    if (placed) {
      stagedUpTo = input.position();
    } else {
      pauseUntil(input.halfFree());
    }
    return placed;
  }

  /** Whether copies of what came before are under way; if so, pauses until they are done. */
  private boolean mustWait() {
    if (input == null || input.hasPassed(stagedUpTo)) {
      return false;
    }
    pauseUntil(stagedUpTo);
    return true;
  }

  private void pauseUntil(long position) {
    pausedUntil = position;
    pause();
    channel.channel().config().setAutoRead(false);
    input.add(this);
  }

  /**
   * Goes on as far as the copies that are done allow. Called by {@link StagedInput}.
   *
   * @return whether this still waits
   */
  boolean advance() {
    while (!flushes.isEmpty() && input.hasPassed(flushes.position())) {
      pendingAck = Math.max(pendingAck, flushes.take());
    }
    acknowledge();
    if (isPaused() && input.hasPassed(pausedUntil)) {
      try {
        resume();
        input.mark();
        acknowledge();
      } catch (FluxCclException e) {
        stagingFailed(e);
        return false;
      }
      if (!isPaused()) {
        channel.channel().config().setAutoRead(true);
        if (endedWhilePaused) {
          ended(null);
        }
      }
    }
    return isPaused() || !flushes.isEmpty();
  }

  /** The device failed, or refused, the copies of what came on this socket. */
  void stagingFailed(FluxCclException cause) {
    if (connection != null) {
      connection.stagingFailed(cause);
    }
  }

  @Override
  public void onFlush(long ticket) {
    if (input == null || input.hasPassed(stagedUpTo)) {
      pendingAck = Math.max(pendingAck, ticket);
    } else {
      flushes.add(ticket, stagedUpTo);
      input.add(this);
    }
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
    if (input != null) {
      input.mark();
    }
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
    if (cause instanceof FluxCclException) {
      stagingFailed((FluxCclException) cause);
    } else {
      ended(cause);
    }
    active.close();
  }

  @Override
  public void channelInactive(ChannelHandlerContext active) {
    if (patience != null) {
      patience.cancel(false);
    }
    if (isPaused()) {
      // What came before the end is still to be placed.
      endedWhilePaused = true;
    } else {
      ended(null);
    }
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
          String.format(
              "a %s to memory that is not, or no longer, registered with rank %s",
              what, context.rank()));
    }
    if (!owned.contains(offset, length)) {
      throw new ProtocolViolation(
          String.format(
              "a %s at offset=%s length=%s outside the %s bytes that rank %s registered",
              what, offset, length, owned.size(), context.rank()));
    }
    return owned;
  }

  private void hold(OwnedMemory memory, String what) {
    if (!memory.beginUse()) {
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
