// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RoceCaptureTest {
  private static final int UDP = 17;
  private static final int TCP = 6;

  private final ByteArrayOutputStream file = new ByteArrayOutputStream();

  private void begin(ByteOrder order) {
    file.writeBytes(ByteBuffer.allocate(24).order(order).putInt(0xa1b2c3d4).array());
  }

  private void packet(ByteOrder order, int protocol, int port, int opcode, int dmaLength) {
    ByteBuffer frame = ByteBuffer.allocate(14 + 20 + 8 + 12 + 16);
    frame.putShort(12, (short) 0x0800).put(14, (byte) 0x45).put(14 + 9, (byte) protocol);
    frame.put(14 + 12, new byte[] {10, 9, 9, 1}).put(14 + 16, new byte[] {10, 9, 9, 2});
    frame.putShort(34 + 2, (short) port).put(42, (byte) opcode).putInt(54 + 12, dmaLength);
    ByteBuffer about = ByteBuffer.allocate(16).order(order);
    about.putInt(8, frame.capacity()).putInt(12, 4000);
    file.writeBytes(about.array());
    file.writeBytes(frame.array());
  }

  private RoceCapture read() throws IOException {
    return RoceCapture.read(new ByteArrayInputStream(file.toByteArray()));
  }

  @Test
  void shouldCountWritesOfEitherByteOrderAndNothingElse() throws IOException {
    for (ByteOrder order : new ByteOrder[] {ByteOrder.LITTLE_ENDIAN, ByteOrder.BIG_ENDIAN}) {
      file.reset();
      begin(order);
      packet(order, UDP, 4791, 0x06, 100_000);
      packet(order, UDP, 4791, 0x07, 1);
      packet(order, UDP, 4791, 0x0a, 8);
      packet(order, UDP, 4791, 0x11, 1);
      packet(order, UDP, 53, 0x0a, 1);
      packet(order, TCP, 4791, 0x0a, 1);
      RoceCapture capture = read();
      assertThat(capture.rocePackets).isEqualTo(4);
      assertThat(capture.writes).isEqualTo(2);
      assertThat(capture.acknowledgements).isEqualTo(1);
      assertThat(capture.tcpBytes).isEqualTo(4000);
      assertThat(capture.writtenBytes).isEqualTo(Map.of("10.9.9.1 -> 10.9.9.2", 100_008L));
    }
  }

  @Test
  void shouldEndWhereTheWriterWasStopped() throws IOException {
    begin(ByteOrder.LITTLE_ENDIAN);
    packet(ByteOrder.LITTLE_ENDIAN, UDP, 4791, 0x0a, 8);
    file.write(1);
    assertThat(read().writes).isEqualTo(1);
  }

  @Test
  void shouldRefuseAFileThatIsNoCapture() {
    file.writeBytes(new byte[100]);
    assertThatThrownBy(this::read).isInstanceOf(IOException.class).hasMessageContaining("pcap");
    file.reset();
    assertThatThrownBy(this::read).isInstanceOf(IOException.class).hasMessageContaining("0 bytes");
  }
}
