package io.fluxccl.transport.net;

import io.fluxccl.netplugin.BodyPlace;
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
  private final NetRecvComm comm;
  private final int capacity;

  /** Chooses the address for each message's body; null if messages have no bodies. */
  private final BodyPlace bodies;

  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetMemory registration;
  private final NetRequest[] requests;

  /** The number of receives posted so far. */
  private long posted;

  ControlReceiver(NetRecvComm comm, int capacity, BodyPlace bodies) {
    this.comm = comm;
    this.capacity = capacity;
    this.bodies = bodies;
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    this.registration = comm.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
    this.requests = new NetRequest[capacity];
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
    return buffer.getInt(index(message) + ControlMessage.RAIL);
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

  /** Returns the payload of a message as text. */
  String text(long message, int length) {
    byte[] bytes = new byte[length];
    buffer.getBytes(index(message) + ControlMessage.HEADER_BYTES, bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
