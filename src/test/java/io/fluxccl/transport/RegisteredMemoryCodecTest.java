// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.TransportFailure;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import net.jqwik.api.constraints.Size;

@net.jqwik.api.Tag("jdk")
class RegisteredMemoryCodecTest {
  private static final int RANK = 3;

  private static byte[] encoded(long size, Map<Transport, byte[]> wires) {
    return RegisteredMemoryCodec.encode(
        new RegisteredMemoryCodec.Decoded(new MemoryOrigin(RANK, 1, 2, 3, size), wires));
  }

  @Property
  void shouldDecodeTheEncodedMemory(
      @ForAll @LongRange(min = 1) long size,
      @ForAll long host,
      @ForAll long process,
      @ForAll @Size(max = 4) List<byte[]> wires) {
    Map<Transport, byte[]> each = new EnumMap<>(Transport.class);
    for (int i = 0; i < wires.size(); i++) {
      each.put(Transport.values()[i], wires.get(i));
    }
    MemoryOrigin origin = new MemoryOrigin(RANK, host, process, 7, size);
    RegisteredMemoryCodec.Decoded back =
        RegisteredMemoryCodec.decode(
            RegisteredMemoryCodec.encode(new RegisteredMemoryCodec.Decoded(origin, each)), RANK);
    assertThat(back.origin()).isEqualTo(origin);
    assertThat(back.wires().keySet()).isEqualTo(each.keySet());
    each.forEach((transport, wire) -> assertThat(back.wires().get(transport)).isEqualTo(wire));
  }

  @Property
  void shouldRefuseAnEncodingOfWrongLength(
      @ForAll @IntRange(max = 64) int length, @ForAll @IntRange(min = 1, max = 200) int change) {
    byte[] whole = encoded(64, Map.of(Transport.SHM, new byte[length]));
    for (int other : new int[] {whole.length - change, whole.length + change}) {
      byte[] wrong = java.util.Arrays.copyOf(whole, Math.max(0, other));
      assertThrows(
          TransportFailure.class, () -> RegisteredMemoryCodec.decode(wrong, RANK), "rank " + RANK);
    }
  }

  @Property
  void shouldReadOrRefuseWithTheRankWhateverByteIsChanged(
      @ForAll @IntRange(max = 69) int index, @ForAll byte value) {
    byte[] bytes = encoded(64, Map.of(Transport.SHM, new byte[20]));
    bytes[index] = value;
    decodeOrRefuse(bytes);
  }

  static void decodeOrRefuse(byte[] bytes) {
    RegisteredMemoryCodec.Decoded memory;
    try {
      memory = RegisteredMemoryCodec.decode(bytes, RANK);
    } catch (TransportFailure e) {
      assertThat(e.rank()).isEqualTo(RANK);
      return;
    }
    assertThat(memory.origin().rank()).isEqualTo(RANK);
    assertThat(memory.origin().size()).isPositive();
    assertThat(RegisteredMemoryCodec.encode(memory)).hasSameSizeAs(bytes);
  }
}
