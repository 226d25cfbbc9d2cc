// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.HexFormat;

/** Prints the name of some memory and keeps it until it is killed. */
final class MemoryOwnerProcess {
  static final int SIZE = 3 << 20;

  private MemoryOwnerProcess() {}

  /** Argument: a {@link CudaMemoryKind}. */
  public static void main(String[] args) throws Exception {
    CudaMemoryKind kind = CudaMemoryKind.valueOf(args[0]);
    try (CudaDevice device = CudaDevice.open(0, CudaDeviceOptions.DEFAULT.withMemory(kind));
        CudaBuffer buffer = device.allocate(SIZE)) {
      buffer.upload(0, pattern());
      System.out.println(HexFormat.of().formatHex(buffer.allocation().name().encode()));
      System.in.read();
    }
  }

  static ProcessRank start(CudaMemoryKind kind) {
    return TestJvms.start(MemoryOwnerProcess.class, kind.name());
  }

  /** Returns the name that the process prints. */
  static CudaMemoryName name(ProcessRank owner) {
    return CudaMemoryName.decode(HexFormat.of().parseHex(owner.readLine()));
  }

  /** Returns the bytes of the buffer. */
  static byte[] pattern() {
    byte[] bytes = new byte[SIZE];
    for (int i = 0; i < SIZE; i++) {
      bytes[i] = (byte) (i * 13 + (i >> 11));
    }
    return bytes;
  }
}
