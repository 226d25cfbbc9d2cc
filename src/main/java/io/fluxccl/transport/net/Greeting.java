// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import org.agrona.BufferUtil;

/**
 * The first message on a link. It contains the token of the receiving end, because the plugin
 * itself admits any process that knows a handle. Confined to the agent. Little-endian:
 *
 * <pre>
 *   32 bytes token
 *   int64 round: 0 for the first link of the connection, and one more for each attempt to resume
 *   int64 received: how many numbered messages the sender of the greeting has received in full
 * </pre>
 */
final class Greeting implements AutoCloseable {
  private static final int ROUND = EndpointWire.TOKEN_LENGTH;
  private static final int RECEIVED = ROUND + Long.BYTES;
  private static final int BYTES = RECEIVED + Long.BYTES;

  private final ByteBuffer buffer =
      BufferUtil.allocateDirectAligned(BYTES, 64).order(ByteOrder.LITTLE_ENDIAN);
  private final long address = BufferUtil.address(buffer);
  private final NetSendComm sender;
  private final NetRecvComm receiver;
  private final byte[] token;
  private final NetMemory memory;
  private NetRequest request;
  private boolean done;

  private Greeting(NetSendComm sender, NetRecvComm receiver, byte[] token) {
    this.sender = sender;
    this.receiver = receiver;
    this.token = token;
    NetComm comm = sender == null ? receiver : sender;
    this.memory = comm.register(address, BYTES, PointerType.HOST);
  }

  /** Returns a greeting to send to the end with that token. */
  static Greeting to(NetSendComm link, byte[] token, long round, long received) {
    Greeting greeting = new Greeting(link, null, token);
    greeting.buffer.put(0, token).putLong(ROUND, round).putLong(RECEIVED, received);
    return greeting;
  }

  /** Returns a greeting to receive by the end with that token. */
  static Greeting from(NetRecvComm link, byte[] token) {
    return new Greeting(null, link, token);
  }

  /**
   * Advances the greeting. Returns whether it was sent or received.
   *
   * @throws ProtocolViolation if a greeting for another token was received
   */
  boolean poll() {
    if (done) {
      return true;
    }
    if (request == null) {
      request =
          sender == null
              ? receiver.irecv(address, BYTES, 0, memory)
              : sender.isend(address, BYTES, 0, memory);
    }
    done = request != null && request.test();
    if (done && sender == null) {
      check();
    }
    return done;
  }

  private void check() {
    byte[] said = new byte[EndpointWire.TOKEN_LENGTH];
    buffer.get(0, said);
    if (request.size(0) != BYTES || !MessageDigest.isEqual(said, token)) {
      throw new ProtocolViolation("another process connected to this end, without its token");
    }
  }

  boolean isDone() {
    return done;
  }

  long round() {
    return buffer.getLong(ROUND);
  }

  long received() {
    return buffer.getLong(RECEIVED);
  }

  /** Deregisters the message's memory. */
  @Override
  public void close() {
    memory.close();
  }
}
