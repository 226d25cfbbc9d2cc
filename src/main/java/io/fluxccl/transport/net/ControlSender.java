package io.fluxccl.transport.net;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Sends control messages in order, from a ring of as many as may be in flight. Confined to the
 * agent; allocates nothing.
 */
final class ControlSender {
  private final NetSendComm comm;
  private final int capacity;
  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;
  private final NetMemory registration;
  private final NetRequest[] requests;
  private final int[] lengths;

  // Messages that were ever claimed, posted, done.
  private long claimed;
  private long posted;
  private long done;

  ControlSender(NetSendComm comm, int capacity) {
    this.comm = comm;
    this.capacity = capacity;
    this.memory = BufferUtil.allocateDirectAligned(capacity * ControlMessage.MAX_BYTES, 64);
    this.buffer = new UnsafeBuffer(memory);
    this.registration = comm.register(buffer.addressOffset(), memory.capacity(), PointerType.HOST);
    this.requests = new NetRequest[capacity];
    this.lengths = new int[capacity];
  }

  /** Whether a message can be {@linkplain #put put}. */
  boolean hasRoom() {
    return claimed - done < capacity;
  }

  /** Whether all is with the peer, or at least with the network. */
  boolean isIdle() {
    return claimed == done;
  }

  /** Room behind the header of the message that is put next: its address. */
  long payloadAddress() {
    return buffer.addressOffset() + index(claimed) + ControlMessage.HEADER_BYTES;
  }

  /** Puts a message; there is room. What is behind its header is there already. */
  void put(int type, int rail, long memoryId, long offset, long value, int payload) {
    int at = index(claimed);
    buffer.putInt(at + ControlMessage.TYPE, type);
    buffer.putInt(at + ControlMessage.RAIL, rail);
    buffer.putLong(at + ControlMessage.MEMORY, memoryId);
    buffer.putLong(at + ControlMessage.OFFSET, offset);
    buffer.putLong(at + ControlMessage.VALUE, value);
    lengths[slot(claimed)] = ControlMessage.HEADER_BYTES + payload;
    claimed++;
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  private int index(long message) {
    return slot(message) * ControlMessage.MAX_BYTES;
  }

  /** Posts what waits and sees what is done; returns how much. */
  int progress() {
    int work = 0;
    while (posted < claimed) {
      int slot = slot(posted);
      NetRequest request =
          comm.isend(buffer.addressOffset() + index(posted), lengths[slot], 0, registration);
      if (request == null) {
        break;
      }
      requests[slot] = request;
      posted++;
      work++;
    }
    while (done < posted && requests[slot(done)].test()) {
      done++;
      work++;
    }
    return work;
  }
}
