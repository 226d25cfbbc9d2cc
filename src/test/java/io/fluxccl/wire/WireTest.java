// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class WireTest {
  private static final int MAGIC = 0x54534554;

  private static byte[] message() {
    return new WireWriter()
        .header(MAGIC, 2)
        .uint8(255)
        .uint16(65_535)
        .int32(-7)
        .int64(Long.MIN_VALUE)
        .bool(true)
        .bytes(new byte[300])
        .string("häuser")
        .toBytes();
  }

  private static WireReader reader(byte[] bytes) {
    return new WireReader(bytes, problem -> new TransportFailure(3, "test message: " + problem));
  }

  private static void read(byte[] bytes) {
    WireReader in = reader(bytes).header(MAGIC, 2);
    assertThat(in.uint8("a")).isEqualTo(255);
    assertThat(in.uint16("b")).isEqualTo(65_535);
    assertThat(in.int32("c")).isEqualTo(-7);
    assertThat(in.int64("d")).isEqualTo(Long.MIN_VALUE);
    assertThat(in.bool("e")).isTrue();
    assertThat(in.bytes("f", 300)).hasSize(300);
    assertThat(in.string("g", 20)).isEqualTo("häuser");
    in.end();
  }

  @Test
  void shouldReadTheWrittenMessage() {
    read(message());
  }

  @Test
  void shouldRefuseEveryTruncation() {
    byte[] whole = message();
    for (int length = 0; length < whole.length; length++) {
      byte[] part = Arrays.copyOf(whole, length);
      assertThatThrownBy(() -> read(part)).isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldRefuseTrailingBytesOtherVersionsAndLongFields() {
    byte[] whole = message();
    assertThatThrownBy(() -> read(Arrays.copyOf(whole, whole.length + 1)))
        .hasMessage("test message: end=1 bytes too many");
    assertThatThrownBy(() -> reader(whole).header(MAGIC, 3))
        .hasMessage("test message: version=2, expected 3");
    assertThatThrownBy(() -> reader(new WireWriter().int32(-1).toBytes()).bytes("x", 9))
        .hasMessage("test message: x=length -1, expected at most 9");
    assertThatThrownBy(() -> reader(new WireWriter().int32(9).toBytes()).int32("y", 0, 8))
        .hasMessage("test message: y=9, expected 0..8");
  }

  @Test
  void shouldThrowNothingButItsErrorOnRandomBytes() {
    Random random = new Random(1);
    for (int i = 0; i < 20_000; i++) {
      byte[] bytes = message();
      for (int flips = random.nextInt(4); flips >= 0; flips--) {
        bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
      }
      WireReader in = reader(bytes);
      try {
        in.header(MAGIC, 2);
        in.bytes("a", random.nextInt(100));
        in.string("b", 10);
        in.end();
      } catch (FluxCclException expected) {
        assertThat(expected).isInstanceOf(TransportFailure.class);
      }
    }
  }
}
