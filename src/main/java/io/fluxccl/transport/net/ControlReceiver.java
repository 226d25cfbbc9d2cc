// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.BodyAddressResolver;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Receives control messages in order, into a ring of posted receives, and reads their fields.
 * Confined to the agent; allocates nothing in steady state.
 */
final class ControlReceiver {
  private final int capacity;

  /** Chooses the address for each message's body; null if messages have no bodies. */
  private final BodyAddressResolver bodies;

  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetRequest[] requests;

  /** Null if the ends did not agree on checksums. */
  private final Checksum checksum;

  private NetRecvComm comm;
  private NetMemory registration;

  /** The number of receives posted so far. */
  private long posted;

  ControlReceiver(NetRecvComm comm, int capacity, BodyAddressResolver bodies, boolean checksums) {
    this.checksum = checksums ? new Checksum() : null;
    this.capacity = capacity;
    this.bodies = bodies;
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    this.requests = new NetRequest[capacity];
    use(comm);
  }

  private void use(NetRecvComm link) {
    comm = link;
    registration = link.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
  }

  /** Returns whether the ends agreed on checksums. */
  boolean hasChecksums() {
    return checksum != null;
  }

  /**
   * Receives on from another link, as the first one is lost.
   *
   * @param arrived the number of messages that have arrived; the next one arrives over the new link
   */
  void resume(NetRecvComm link, long arrived) {
    use(link);
    posted = arrived;
  }

  /**
   * Posts a receive for each free slot.
   *
   * @param done the number of messages done, whose slots are free again
   * @return the number of receives posted
   */
  int post(long done) {
    int work = 0;
    while (posted - done < capacity) {
      NetRequest request =
          bodies == null
              ? comm.irecv(address(posted), ControlMessage.MAX_BYTES, 0, registration)
              : comm.irecv(address(posted), ControlMessage.MAX_BYTES, registration, bodies);
      if (request == null) {
        break;
      }
      requests[slot(posted)] = request;
      posted++;
      work++;
    }
    return work;
  }

  /** Returns whether a message has arrived; all messages before it have. */
  boolean hasArrived(long message) {
    return message < posted && requests[slot(message)].test();
  }

  /** Returns the length in bytes of a message that has arrived, without its body. */
  long bytes(long message) {
    return requests[slot(message)].size(0);
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int index(long message) {
    return slot(message) * ControlMessage.MAX_BYTES;
  }

  long address(long message) {
    return buffer.addressOffset() + index(message);
  }

  /** Returns the address of a message's payload, which follows its header. */
  long payload(long message) {
    return address(message) + ControlMessage.HEADER_BYTES;
  }

  int type(long message) {
    return buffer.getInt(index(message) + ControlMessage.TYPE);
  }

  int rail(long message) {
    return buffer.getShort(index(message) + ControlMessage.RAIL);
  }

  int flags(long message) {
    return buffer.getShort(index(message) + ControlMessage.FLAGS);
  }

  /** Returns how many numbered messages the peer had received in full when it sent this one. */
  long received(long message) {
    return buffer.getLong(index(message) + ControlMessage.RECEIVED);
  }

  long memory(long message) {
    return buffer.getLong(index(message) + ControlMessage.MEMORY);
  }

  long offset(long message) {
    return buffer.getLong(index(message) + ControlMessage.OFFSET);
  }

  long value(long message) {
    return buffer.getLong(index(message) + ControlMessage.VALUE);
  }

  /**
   * Checks the head of a message against its checksum, if the ends agreed on checksums.
   *
   * @param number of the message among those that have one; of one without it, of the next
   * @param bytes the length of the head
   * @param body the length of the body that follows it
   * @throws CorruptMessage if the head, or the length of the body, is not what the peer sent, or if
   *     the message is not the next one that it sent
   */
  void checkHead(long message, long number, long bytes, long body) {
    if (checksum == null) {
      return;
    }
    if (bytes < ControlMessage.HEADER_BYTES) {
      throw new CorruptMessage(bytes);
    }
    int at = index(message) + ControlMessage.CHECKSUM;
    int sent = buffer.getInt(at);
    buffer.putInt(at, (int) number);
    if (sent != checksum.of(address(message), bytes) || body != 0 && body != value(message)) {
      throw new CorruptMessage(bytes + body);
    }
  }

  /**
   * Checks the body of a message against its checksum, if the ends agreed on checksums.
   *
   * @param address the address of the body
   * @throws CorruptMessage if it is not what the peer sent
   */
  void checkBody(long message, long address) {
    if (checksum != null
        && checksum.of(address, value(message))
            != buffer.getInt(index(message) + ControlMessage.BODY_CHECKSUM)) {
      throw new CorruptMessage(value(message));
    }
  }

  /** Returns the payload of a message as text. */
  String text(long message, int length) {
    byte[] bytes = new byte[length];
    buffer.getBytes(index(message) + ControlMessage.HEADER_BYTES, bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
