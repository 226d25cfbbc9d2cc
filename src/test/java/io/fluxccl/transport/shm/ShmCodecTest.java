package io.fluxccl.transport.shm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.SegmentName;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import org.junit.jupiter.api.Test;

class ShmCodecTest {
  private static final SegmentName SEGMENT = new SegmentName(1, 2, 3, 4, 4096);

  @Property
  void shouldReadBackEveryPlace(@ForAll @LongRange(min = 0, max = 4095) long offset) {
    ShmMemoryCodec.Place place = new ShmMemoryCodec.Place(SEGMENT, offset);
    byte[] wire = ShmMemoryCodec.encode(place);
    assertThat(ShmMemoryCodec.decode(wire, 4096 - offset, 3)).isEqualTo(place);
    assertThatThrownBy(() -> ShmMemoryCodec.decode(wire, 4097 - offset, 3))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 3");
  }

  @Property
  void shouldReadBackEveryEnd(
      @ForAll @IntRange int rank, @ForAll int tag, @ForAll long host, @ForAll long process) {
    ShmEndpointCodec.End end = new ShmEndpointCodec.End(rank, tag, host, process);
    assertThat(ShmEndpointCodec.decode(ShmEndpointCodec.encode(end), rank)).isEqualTo(end);
  }

  @Property
  void shouldRefuseAnyLengthButTheRightOne(@ForAll @IntRange(max = 200) int length) {
    if (length != ShmMemoryCodec.LENGTH) {
      assertThatThrownBy(() -> ShmMemoryCodec.decode(new byte[length], 1, 0))
          .isInstanceOf(TransportFailure.class);
    }
    if (length != ShmEndpointCodec.LENGTH) {
      assertThatThrownBy(() -> ShmEndpointCodec.decode(new byte[length], 0))
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldRefuseRangesOutsideTheSegment() {
    for (long[] range : new long[][] {{-1, 1}, {4096, 1}, {0, 0}, {0, -1}, {1, Long.MAX_VALUE}}) {
      byte[] wire = ShmMemoryCodec.encode(new ShmMemoryCodec.Place(SEGMENT, range[0]));
      assertThatThrownBy(() -> ShmMemoryCodec.decode(wire, range[1], 0))
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Property
  void shouldRefuseOrReadBackAMemoryWithOneByteChanged(
      @ForAll @IntRange(max = ShmMemoryCodec.LENGTH - 1) int index, @ForAll byte value) {
    byte[] wire = ShmMemoryCodec.encode(new ShmMemoryCodec.Place(SEGMENT, 64));
    wire[index] = value;
    decodeMemory(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyMemory(byte[] wire) {
    decodeMemory(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyEnd(byte[] wire) {
    ShmEndpointCodec.End end;
    try {
      end = ShmEndpointCodec.decode(wire, 0);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(ShmEndpointCodec.encode(end)).isEqualTo(wire);
  }

  private static void decodeMemory(byte[] wire) {
    ShmMemoryCodec.Place place;
    try {
      place = ShmMemoryCodec.decode(wire, 1, 0);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(ShmMemoryCodec.encode(place)).isEqualTo(wire);
  }
}
