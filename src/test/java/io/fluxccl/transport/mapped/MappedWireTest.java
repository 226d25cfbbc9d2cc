// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import net.jqwik.api.constraints.Size;
import org.junit.jupiter.api.Test;

class MappedWireTest {
  private static final int RANK = 3;

  private static MappedMemoryDescriptor decode(byte[] wire) {
    return MappedMemoryDescriptor.decode(Transport.SHM, wire, RANK);
  }

  private static MemoryOrigin origin(long size) {
    return new MemoryOrigin(RANK, 1, 2, 3, size);
  }

  @Property
  void shouldReadBackEveryPlace(
      @ForAll @LongRange(min = 0) long offset, @ForAll @Size(max = 200) byte[] name) {
    MappedMemoryDescriptor read =
        decode(new MappedMemoryDescriptor(Transport.SHM, name, offset).encode());
    assertThat(read.offset()).isEqualTo(offset);
    assertThat(read.name()).isEqualTo(name);
  }

  @Property
  void shouldReadBackEveryEnd(
      @ForAll int rank, @ForAll int tag, @ForAll long host, @ForAll long process) {
    MappedEndpoint.End end =
        new MappedEndpoint.End(Transport.CUDA_IPC, rank, tag, host, process, "0001:3b:1f.7");
    assertThat(MappedEndpoint.End.decode(Transport.CUDA_IPC, end.encode(), rank)).isEqualTo(end);
  }

  @Property
  void shouldRefuseZeros(@ForAll @IntRange(max = 400) int length) {
    assertThrows(TransportFailure.class, () -> decode(new byte[length]), "rank 3");
    assertThrows(
        TransportFailure.class,
        () -> MappedEndpoint.End.decode(Transport.SHM, new byte[length], RANK),
        "rank 3");
  }

  @Test
  void shouldRefuseTheEndOfAnotherRankOrTransport() {
    byte[] wire = new MappedEndpoint.End(Transport.SHM, 1, 2, 3, 4, "").encode();
    assertThrows(
        TransportFailure.class, () -> MappedEndpoint.End.decode(Transport.SHM, wire, 2), "rank=1");
    assertThrows(
        TransportFailure.class,
        () -> MappedEndpoint.End.decode(Transport.CUDA_IPC, wire, 1),
        "transport=");
  }

  @Test
  void shouldRefuseRangesOutsideTheSegment() {
    byte[] negative = new MappedMemoryDescriptor(Transport.SHM, new byte[8], -1).encode();
    assertThatThrownBy(() -> decode(negative)).isInstanceOf(TransportFailure.class);
    for (long[] range :
        new long[][] {{4096, 1}, {4097, 1}, {0, 0}, {0, -1}, {1, Long.MAX_VALUE}, {1, 4096}}) {
      MappedMemoryDescriptor place =
          new MappedMemoryDescriptor(Transport.SHM, new byte[8], range[0]);
      assertThrows(
          TransportFailure.class, () -> place.checkWithin(4096, origin(range[1])), "rank 3");
    }
    new MappedMemoryDescriptor(Transport.SHM, new byte[8], 1).checkWithin(4096, origin(4095));
  }

  @Test
  void shouldNameTheOwnerOfAMalformedName() {
    MappedMemoryDescriptor place = new MappedMemoryDescriptor(Transport.SHM, new byte[8], 0);
    assertThrows(
        TransportFailure.class,
        () ->
            place.nameBy(
                bytes -> {
                  throw new InvalidUsage("no name");
                },
                origin(1)),
        "rank 3",
        "no name");
  }

  @Property
  void shouldRefuseOrReadBackAMemoryWithOneByteChanged(
      @ForAll @IntRange(max = MappedMemoryDescriptor.NAME_INDEX + 7) int index,
      @ForAll byte value) {
    byte[] wire = new MappedMemoryDescriptor(Transport.SHM, new byte[8], 64).encode();
    wire[index] = value;
    shouldDecodeOrRefuseAnyMemory(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyMemory(byte[] wire) {
    MappedMemoryDescriptor place;
    try {
      place = decode(wire);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(place.encode()).isEqualTo(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyEnd(byte[] wire) {
    MappedEndpoint.End end;
    try {
      end = MappedEndpoint.End.decode(Transport.SHM, wire, 0);
    } catch (TransportFailure e) {
      return;
    }
    assertThat(MappedEndpoint.End.decode(Transport.SHM, end.encode(), 0)).isEqualTo(end);
  }
}
