// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import org.agrona.UnsafeApi;
import org.junit.jupiter.api.Test;

class KernelParametersTest {
  private static final Kernel KERNEL = HostKernel.of("k", (thread, args) -> {});

  private final KernelParameters parameters = new KernelParameters(null);

  private long[] pack(Object... args) {
    CudaPointer packed = parameters.pack(KERNEL, CudaModule.Signature.UNKNOWN, KernelArgs.of(args));
    long[] addresses = new long[args.length];
    for (int i = 0; i < args.length; i++) {
      addresses[i] = UnsafeApi.getLong(CudaPointer.valueOf(packed) + i * (long) Long.BYTES);
    }
    return addresses;
  }

  @Test
  void shouldPlaceEachValueAtAnAlignedAddress() {
    long[] at = pack(7, -3L, 1.5f, 2.5, ByteBuffer.wrap(new byte[] {1, 2, 3}, 1, 2));
    assertThat(Arrays.stream(at).boxed()).allMatch(address -> address % 16 == 0);
    assertThat(UnsafeApi.getInt(at[0])).isEqualTo(7);
    assertThat(UnsafeApi.getLong(at[1])).isEqualTo(-3);
    assertThat(UnsafeApi.getFloat(at[2])).isEqualTo(1.5f);
    assertThat(UnsafeApi.getDouble(at[3])).isEqualTo(2.5);
    assertThat(UnsafeApi.getByte(at[4])).isEqualTo((byte) 2);
    assertThat(UnsafeApi.getByte(at[4] + 1)).isEqualTo((byte) 3);
  }

  @Test
  void shouldTakeLargeStructuresAndManyArguments() {
    byte[] structure = new byte[20_000];
    Arrays.fill(structure, (byte) 9);
    for (int round = 0; round < 2; round++) {
      long[] at = pack(7, structure, -3L);
      assertThat(UnsafeApi.getInt(at[0])).isEqualTo(7);
      assertThat(UnsafeApi.getByte(at[1])).isEqualTo((byte) 9);
      assertThat(UnsafeApi.getByte(at[1] + structure.length - 1)).isEqualTo((byte) 9);
      assertThat(UnsafeApi.getLong(at[2])).isEqualTo(-3);
    }
    long[] many = pack(Collections.nCopies(1500, 5L).toArray());
    assertThat(many).hasSize(1500).doesNotHaveDuplicates();
    assertThat(Arrays.stream(many).boxed()).allMatch(at -> UnsafeApi.getLong(at) == 5);
    assertRefused(() -> pack(structure, structure), "kernel k", "32764");
  }
}
