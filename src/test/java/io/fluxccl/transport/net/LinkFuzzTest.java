// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import com.code_intelligence.jazzer.api.FuzzedDataProvider;
import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.BodyAddressResolver;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.Overlay;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.Queue;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Sends random messages on a link of ETHERNET or NET: each is executed within the memory that the
 * peer may write, or refused as a violation.
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
      link.messages.add(message(input));
    }
    Inbound inbound = inbound(link, input.consumeBoolean());
    try {
      while (inbound.progress() > 0) {
        assertThat(inbound.received()).isLessThanOrEqualTo(inbound.arrived());
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
    link.messages.add(new Sent(head, new byte[0]));
    assertThatThrownBy(inbound(link, false)::progress).isInstanceOf(ProtocolViolation.class);
  }

  private static Inbound inbound(Scripted link, boolean checksums) {
    Links links = new Links(0);
    links.receivers[0] = Overlay.of(NetRecvComm.class, link, null);
    return new Inbound(links, CAPACITY, checksums, Shared.TABLE, null, Shared.EVENTS);
  }

  private static byte byteAt(long address) {
    return (byte) (HostMemory.getInt(address & -Integer.BYTES) >> 8 * (address & 3));
  }

  private record Sent(byte[] head, byte[] body) {}

  /** Returns a message that is right or nearly so. */
  private static Sent message(FuzzedDataProvider input) {
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
            .putLong(ControlMessage.RECEIVED, input.consumeLong());
    head.put(ControlMessage.HEADER_BYTES, payload);
    int length = input.consumeInt(0, 9) > 0 ? head.capacity() : input.consumeInt(0, 47);
    byte[] bytes = new byte[Math.min(length, head.capacity())];
    head.get(0, bytes);
    return new Sent(bytes, body);
  }

  /** Delivers messages in order to the receives that are posted, as the TCP network does. */
  private static final class Scripted {
    final Queue<Sent> messages = new ArrayDeque<>();
    private long posted;
    private long delivered;

    NetRequest irecv(long head, long room, NetMemory memory, BodyAddressResolver place) {
      long number = posted++;
      return new NetRequest() {
        private long size = -1;

        @Override
        public boolean test() {
          if (size < 0 && number == delivered && !messages.isEmpty()) {
            deliver(messages.element());
          }
          return size >= 0;
        }

        private void deliver(Sent next) {
          copy(head, next.head);
          if (next.body.length > 0) {
            long at = place.addressOf(head, next.head.length, next.body.length);
            if (at == BodyAddressResolver.NOT_YET) {
              return;
            }
            copy(at, next.body);
          }
          size = next.head.length;
          delivered++;
          messages.remove();
        }

        @Override
        public long size(int index) {
          return size;
        }
      };
    }

    private static void copy(long address, byte[] bytes) {
      ByteBuffer source = ByteBuffer.allocateDirect(bytes.length).put(0, bytes);
      HostMemory.copy(address, BufferUtil.address(source), bytes.length);
    }

    NetMemory register(long address, long size, PointerType type) {
      return () -> {};
    }
  }

  /** Opened with the first input. */
  private static final class Shared {
    static final HostDevice HOST = HostDevice.create();
    static final DeviceBuffer WHOLE = HOST.allocate(2 * GUARD + SIZE);
    static final NetRanks RANKS = NetRanks.ethernet(false);
    static final MemoryTable TABLE = new MemoryTable(RANKS.context(0), new SecureRandom());
    static final Inbound.Events EVENTS = mock(Inbound.Events.class, withSettings().stubOnly());
    static final OwnedMemory MEMORY =
        TABLE.add(WHOLE.slice(GUARD, SIZE), NetMemoryHandle.Place.HOST);
  }
}
