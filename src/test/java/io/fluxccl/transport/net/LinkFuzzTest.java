// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.code_intelligence.jazzer.api.FuzzedDataProvider;
import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Overlay;
import io.fluxccl.transport.Transport;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Sends random bytes that are nearly messages on a link: each message is executed within the memory
 * that the peer may write, or refused as a violation.
 */
class LinkFuzzTest {
  private static final int GUARD = 4096;
  private static final int SIZE = 4096;
  private static final int CAPACITY = 8;
  private static final int MESSAGES = 24;
  private static final byte UNTOUCHED = 0x5a;

  @AfterAll
  static void close() {
    Shared.RANKS.close();
    Shared.WHOLE.close();
    Shared.HOST.close();
  }

  @FuzzTest(maxDuration = "75s")
  void messages(FuzzedDataProvider input) {
    long start = Shared.WHOLE.address();
    HostMemory.fill(start, 2 * GUARD + SIZE, UNTOUCHED);
    Scripted link = new Scripted();
    for (int i = 0; i < MESSAGES && input.remainingBytes() > 0; i++) {
      link.add(message(input));
    }
    Receiver receiver = receiver(link, input.consumeBoolean());
    try {
      while (receiver.progress() > 0) {
        assertThat(receiver.received()).isLessThanOrEqualTo(receiver.arrived());
      }
    } catch (ProtocolViolation | CorruptMessage refused) {
      // The connection fails, or gets another link.
    }
    for (int i = 0; i < GUARD; i++) {
      assertThat(byteAt(start + i)).isEqualTo(UNTOUCHED);
      assertThat(byteAt(start + GUARD + SIZE + i)).isEqualTo(UNTOUCHED);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {ControlMessage.DATA, ControlMessage.UPDATE_DATA})
  void shouldRefuseAMessageWithoutItsBytes(int type) {
    byte[] head = new byte[ControlMessage.HEADER_BYTES];
    ByteBuffer.wrap(head)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(ControlMessage.TYPE, type)
        .putLong(ControlMessage.MEMORY, Shared.MEMORY.id());
    Scripted link = new Scripted();
    link.add(head);
    assertThatThrownBy(receiver(link, false)::progress).isInstanceOf(CorruptMessage.class);
  }

  private static Receiver receiver(Scripted link, boolean checksums) {
    Heads heads = new Heads(CAPACITY, Shared.TABLE, false, checksums);
    Link scripted = Overlay.of(Link.class, link, null);
    return new Receiver(Shared.CONNECTION, scripted, heads, Shared.SENDER, null);
  }

  private static byte byteAt(long address) {
    return (byte) (HostMemory.getInt(address & -Integer.BYTES) >> 8 * (address & 3));
  }

  /** Returns a message that is right or nearly so. */
  private static byte[] message(FuzzedDataProvider input) {
    int type = input.consumeInt(ControlMessage.INLINE - 1, ControlMessage.CONFIRM + 1);
    byte[] payload = input.consumeBytes(input.consumeInt(0, 64));
    byte[] body = type == ControlMessage.DATA ? new byte[input.consumeInt(0, SIZE)] : new byte[0];
    int right = type == ControlMessage.DATA ? body.length : payload.length;
    ByteBuffer head =
        ByteBuffer.allocate(ControlMessage.HEADER_BYTES + payload.length)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt(ControlMessage.TYPE, type)
            .putShort(
                ControlMessage.RAIL, (short) (input.consumeBoolean() ? 0 : input.consumeInt()))
            .putShort(ControlMessage.FLAGS, (short) input.consumeInt())
            .putLong(
                ControlMessage.MEMORY,
                input.consumeInt(0, 9) > 0 ? Shared.MEMORY.id() : input.consumeLong())
            .putLong(
                ControlMessage.OFFSET,
                input.consumeBoolean() ? input.consumeLong(-8, SIZE) : input.consumeLong())
            .putLong(ControlMessage.VALUE, input.consumeInt(0, 9) > 0 ? right : input.consumeLong())
            .putLong(ControlMessage.RECEIVED, input.consumeInt(0, 9) > 0 ? 0 : input.consumeLong());
    head.put(ControlMessage.HEADER_BYTES, payload);
    int length = input.consumeInt(0, 9) > 0 ? head.capacity() : input.consumeInt(0, 47);
    byte[] bytes = new byte[Math.min(length, head.capacity()) + body.length];
    head.get(0, bytes, 0, bytes.length - body.length);
    System.arraycopy(body, 0, bytes, bytes.length - body.length, body.length);
    return bytes;
  }

  /** Delivers the bytes of messages in order, as a socket does. */
  private static final class Scripted {
    private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
    private int delivered;
    private long bodyAddress;
    private int bodyLength;

    void add(byte[] message) {
      sent.writeBytes(message);
    }

    private boolean deliver(long address, int length) {
      byte[] bytes = sent.toByteArray();
      if (bytes.length - delivered < length) {
        return false;
      }
      ByteBuffer source = ByteBuffer.allocateDirect(length).put(0, bytes, delivered, length);
      HostMemory.copy(address, BufferUtil.address(source), length);
      delivered += length;
      return true;
    }

    boolean keepsOrder() {
      return true;
    }

    boolean receiveHead(long place, Link.HeadReader reader) {
      return deliver(place, ControlMessage.HEADER_BYTES)
          && deliver(place + ControlMessage.HEADER_BYTES, reader.payload(place));
    }

    boolean receiveBody(int slot, long head, OwnedMemory target, long address, int length) {
      bodyAddress = address;
      bodyLength = length;
      return true;
    }

    boolean isReceived(int slot) {
      return deliver(bodyAddress, bodyLength);
    }
  }

  /** A link that takes the memory of a sender. */
  private static final class Registering {
    int capacity() {
      return CAPACITY;
    }
  }

  /** Opened with the first input. */
  private static final class Shared {
    static final HostDevice HOST = HostDevice.create();
    static final DeviceBuffer WHOLE = HOST.allocate(2 * GUARD + SIZE);
    static final NetRanks RANKS = NetRanks.ethernet(false);
    static final MemoryTable TABLE = new MemoryTable(RANKS.context(0), new SecureRandom());
    static final Link UNUSED = Overlay.of(Link.class, new Registering(), null);
    static final NetConnection CONNECTION =
        new NetConnection(RANKS.context(0), 1, 0, EndpointConfig.of(Transport.ETHERNET), UNUSED);
    static final Sender SENDER =
        new Sender(CONNECTION.queue(), UNUSED, false, null, CONNECTION::asked);
    static final OwnedMemory MEMORY =
        TABLE.add(WHOLE.slice(GUARD, SIZE), NetMemoryHandle.Place.HOST);
  }
}
