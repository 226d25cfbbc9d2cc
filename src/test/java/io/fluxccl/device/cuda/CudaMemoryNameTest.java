// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.InvalidUsage;
import java.util.Arrays;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.CharRange;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import net.jqwik.api.constraints.Size;
import net.jqwik.api.constraints.StringLength;
import org.junit.jupiter.api.Test;

class CudaMemoryNameTest {
  private static final CudaMemory.Id ID = new CudaMemory.Id(0x1234567890L, 7);
  private static final String GPU = "0000:3b:00.0";
  private static final CudaMemoryName PLAIN =
      plain(ID, 4096, GPU, new byte[CudaMemoryName.HANDLE_LENGTH]);
  private static final CudaMemoryName VMM =
      vmm(ID, 4096, GPU, "fluxccl-1-2", new byte[CudaMemoryName.TOKEN_LENGTH]);

  private static CudaMemoryName plain(CudaMemory.Id id, long size, String pciBusId, byte[] handle) {
    return new CudaMemoryName(CudaMemoryKind.PLAIN, id, size, pciBusId, "", handle, 1);
  }

  private static CudaMemoryName vmm(
      CudaMemory.Id id, long size, String pciBusId, String socket, byte[] token) {
    return new CudaMemoryName(CudaMemoryKind.VMM, id, size, pciBusId, socket, token, 1);
  }

  @Property
  void shouldReadBackEveryPlainName(
      @ForAll long process,
      @ForAll long number,
      @ForAll @LongRange(min = 1) long size,
      @ForAll @Size(CudaMemoryName.HANDLE_LENGTH) byte[] handle) {
    CudaMemoryName name = plain(new CudaMemory.Id(process, number), size, GPU, handle);
    CudaMemoryName read = CudaMemoryName.decode(name.encode());
    assertThat(read).isEqualTo(name).hasSameHashCodeAs(name);
    assertThat(read.kind()).isEqualTo(CudaMemoryKind.PLAIN);
    assertThat(read.id()).isEqualTo(new CudaMemory.Id(process, number));
    assertThat(read.size()).isEqualTo(size);
    assertThat(read.pciBusId()).isEqualTo(GPU);
    assertThat(read.secret()).isEqualTo(handle);
  }

  @Property
  void shouldReadBackEveryVmmName(
      @ForAll @StringLength(min = 1, max = 107) @CharRange(from = '!', to = '~') String socket,
      @ForAll @Size(CudaMemoryName.TOKEN_LENGTH) byte[] token) {
    CudaMemoryName name = vmm(ID, 1, "00010000:ff:1f.7", socket, token);
    CudaMemoryName read = CudaMemoryName.decode(name.encode());
    assertThat(read).isEqualTo(name).isNotEqualTo(PLAIN);
    assertThat(read.kind()).isEqualTo(CudaMemoryKind.VMM);
    assertThat(read.socket()).isEqualTo(socket);
    assertThat(read.secret()).isEqualTo(token);
    assertThat(name.encode()).hasSizeLessThanOrEqualTo(CudaMemoryName.MAX_ENCODED_LENGTH);
  }

  @Property
  void shouldRefuseEveryOtherLength(@ForAll @IntRange(max = 300) int length) {
    for (byte[] wire : new byte[][] {PLAIN.encode(), VMM.encode()}) {
      if (length != wire.length) {
        byte[] changed = Arrays.copyOf(wire, length);
        assertRefused(() -> CudaMemoryName.decode(changed));
      }
    }
  }

  @Property(tries = 5000)
  void shouldRefuseOrReadBackWithOneByteChanged(
      @ForAll boolean vmm, @ForAll @IntRange(max = 120) int index, @ForAll byte value) {
    byte[] wire = (vmm ? VMM : PLAIN).encode();
    wire[index % wire.length] = value;
    decodeOrRefuse(wire);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyName(byte[] wire) {
    decodeOrRefuse(wire);
  }

  private static void decodeOrRefuse(byte[] wire) {
    CudaMemoryName name;
    try {
      name = CudaMemoryName.decode(wire);
    } catch (InvalidUsage e) {
      return;
    }
    assertThat(name.encode()).isEqualTo(wire);
  }

  @Test
  void shouldRefuseInvalidNames() {
    for (String gpu : new String[] {"", "0", "0000:3B:00.0", "../../etc/passwd", "0000:3b:00.8"}) {
      assertRefused(() -> plain(ID, 1, gpu, PLAIN.secret()));
    }
    assertRefused(() -> plain(ID, 0, GPU, PLAIN.secret()));
    assertRefused(() -> plain(ID, 1, GPU, new byte[63]));
    for (String socket : new String[] {"", "a b", "\0a", "é", "x".repeat(108)}) {
      assertRefused(() -> vmm(ID, 1, GPU, socket, VMM.secret()));
    }
  }

  @Test
  void shouldNotPrintTheToken() {
    byte[] token = new byte[CudaMemoryName.TOKEN_LENGTH];
    Arrays.fill(token, (byte) 0xab);
    assertThat(vmm(ID, 1, GPU, "the-socket", token).toString())
        .contains(GPU, "memory 7")
        .doesNotContain("abab")
        .doesNotContain("-85");
  }

  @Test
  void shouldKnowItsOwnProcess() {
    assertThat(ID.isOfThisProcess()).isFalse();
    assertThat(CudaMemory.retainOwned(PLAIN)).isEmpty();
  }
}
