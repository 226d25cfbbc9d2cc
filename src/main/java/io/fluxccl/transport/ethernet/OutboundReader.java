package io.fluxccl.transport.ethernet;

import io.fluxccl.ErrorCode;
import io.netty.channel.ChannelHandlerContext;
import org.agrona.DirectBuffer;

/**
 * The connecting side of a socket: says hello, waits for the welcome, then reads acknowledgements.
 * Called from the event loop.
 */
final class OutboundReader extends FrameReader {
  private static final int STAGING_LENGTH = 4 * 1024;

  private final EthernetContext context;
  private final EthernetConnection connection;
  private final byte[] token;
  private boolean welcomed;
  private boolean goodbye;

  /**
   * @param token of the peer's end
   */
  OutboundReader(EthernetContext context, EthernetConnection connection, byte[] token) {
    super(HandshakeDescriptor.WELCOME_LENGTH, STAGING_LENGTH);
    this.context = context;
    this.connection = connection;
    this.token = token;
  }

  @Override
  public void channelActive(ChannelHandlerContext active) {
    MemoryWindow out = context.pool().batch();
    out.writerIndex(
        HandshakeDescriptor.putHello(out.view(), context.rank(), connection.tag(), token));
    active.writeAndFlush(out, active.voidPromise());
  }

  @Override
  boolean onHandshake(DirectBuffer welcome, boolean excess) {
    welcomed = HandshakeDescriptor.isWelcome(welcome);
    if (welcomed) {
      connection.outgoingUp();
    } else {
      connection.fail("rank " + connection.remoteRank() + " answered with no welcome", null);
    }
    return welcomed;
  }

  @Override
  public void onAck(long ticket) {
    connection.acknowledged(ticket);
  }

  @Override
  public void onError(ErrorCode code, String message) {
    connection.fail(
        "rank " + connection.remoteRank() + " refused what was written: " + message, null);
  }

  @Override
  public void onGoodbye() {
    goodbye = true;
    connection.peerLeft();
  }

  @Override
  void onViolation(ProtocolViolation violation) {
    connection.fail("rank " + connection.remoteRank() + " sent " + violation.getMessage(), null);
  }

  @Override
  public void channelWritabilityChanged(ChannelHandlerContext active) {
    connection.pump();
    active.fireChannelWritabilityChanged();
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext active, Throwable cause) {
    ended(cause);
    active.close();
  }

  @Override
  public void channelInactive(ChannelHandlerContext active) {
    ended(null);
    active.fireChannelInactive();
  }

  private void ended(Throwable cause) {
    if (goodbye) {
      return;
    }
    if (welcomed) {
      connection.socketEnded(cause);
    } else {
      connection.fail(
          String.format(
              "rank %s hung up on the hello; its end may be closed, or the wire not be its"
                  + " own",
              connection.remoteRank()),
          cause);
    }
  }
}
