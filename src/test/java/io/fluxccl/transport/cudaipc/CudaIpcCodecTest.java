package io.fluxccl.transport.cudaipc;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaMemoryName;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import org.junit.jupiter.api.Test;

class CudaIpcCodecTest {
  private static final int SIZE = 4096;
  private static final String BUS_ID = "0000:3b:00.0";
  private static final CudaMemoryName NAME = CudaMemoryName.decode(encodedName());

  /** As CudaMemoryName says; nobody outside its package makes one. */
  private static byte[] encodedName() {
    return ByteBuffer.allocate(32 + 1 + BUS_ID.length() + CudaMemoryName.HANDLE_LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(0x4d435846)
        .putShort((short) 1)
        .putShort((short) 0)
        .putLong(7)
        .putLong(8)
        .putLong(SIZE)
        .put((byte) BUS_ID.length())
        .put(BUS_ID.getBytes(StandardCharsets.US_ASCII))
        .array();
  }

  @Property
  void shouldReadBackEveryPlace(@ForAll @LongRange(min = 0, max = SIZE - 1) long offset) {
    CudaIpcMemoryCodec.Place place = new CudaIpcMemoryCodec.Place(NAME, offset);
    byte[] wire = CudaIpcMemoryCodec.encode(place);
    assertThat(wire).hasSizeLessThanOrEqualTo(CudaIpcMemoryCodec.MAX_LENGTH);
    assertThat(CudaIpcMemoryCodec.decode(wire, SIZE - offset, 3)).isEqualTo(place);
    assertThatThrownBy(() -> CudaIpcMemoryCodec.decode(wire, SIZE + 1 - offset, 3))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 3");
  }

  @Property
  void shouldReadBackEveryEnd(
      @ForAll int rank,
      @ForAll int tag,
      @ForAll long host,
      @ForAll long process,
      @ForAll @IntRange(max = 255) int bus) {
    CudaIpcEndpointCodec.End end =
        new CudaIpcEndpointCodec.End(
            rank, tag, host, process, String.format("0001:%02x:1f.7", bus));
    assertThat(CudaIpcEndpointCodec.decode(CudaIpcEndpointCodec.encode(end), rank)).isEqualTo(end);
  }

  @Property
  void shouldRefuseZeros(@ForAll @IntRange(max = 400) int length) {
    assertThatThrownBy(() -> CudaIpcMemoryCodec.decode(new byte[length], 1, 0))
        .isInstanceOf(TransportFailure.class);
    assertThatThrownBy(() -> CudaIpcEndpointCodec.decode(new byte[length], 0))
        .isInstanceOf(TransportFailure.class);
  }

  @Test
  void shouldRefuseRangesOutsideTheAllocation() {
    for (long[] range : new long[][] {{-1, 1}, {SIZE, 1}, {0, 0}, {0, -1}, {1, Long.MAX_VALUE}}) {
      byte[] wire = CudaIpcMemoryCodec.encode(new CudaIpcMemoryCodec.Place(NAME, range[0]));
      assertThatThrownBy(() -> CudaIpcMemoryCodec.decode(wire, range[1], 0))
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldRefuseTheEndOfAnotherRankAndAGpuThatIsNone() {
    byte[] wire = CudaIpcEndpointCodec.encode(new CudaIpcEndpointCodec.End(1, 2, 3, 4, BUS_ID));
    assertThatThrownBy(() -> CudaIpcEndpointCodec.decode(wire, 2))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank=1");
    byte[] elsewhere =
        CudaIpcEndpointCodec.encode(new CudaIpcEndpointCodec.End(1, 2, 3, 4, "../../etc/x"));
    assertThatThrownBy(() -> CudaIpcEndpointCodec.decode(elsewhere, 1))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("bus id");
  }

  @Property
  void shouldRefuseOrReadBackAMemoryWithOneByteChanged(
      @ForAll @IntRange(max = 120) int index, @ForAll byte value) {
    byte[] wire = CudaIpcMemoryCodec.encode(new CudaIpcMemoryCodec.Place(NAME, 64));
    wire[index % wire.length] = value;
    decodeMemory(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyMemory(byte[] wire) {
    decodeMemory(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyEnd(byte[] wire) {
    CudaIpcEndpointCodec.End end;
    try {
      end = CudaIpcEndpointCodec.decode(wire, 0);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(CudaIpcEndpointCodec.encode(end)).isEqualTo(wire);
  }

  private static void decodeMemory(byte[] wire) {
    CudaIpcMemoryCodec.Place place;
    try {
      place = CudaIpcMemoryCodec.decode(wire, 1, 0);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(CudaIpcMemoryCodec.encode(place)).isEqualTo(wire);
  }
}
