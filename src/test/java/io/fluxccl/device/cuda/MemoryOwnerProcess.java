// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.util.Arrays;
import java.util.HexFormat;

/** Prints the name of some memory and keeps it until it is killed. */
final class MemoryOwnerProcess {
  static final byte FILL = 42;

  private MemoryOwnerProcess() {}

  public static void main(String[] args) throws Exception {
    try (CudaDevice device =
            CudaDevice.open(
                0, CudaDeviceOptions.DEFAULT.withMemory(CudaMemoryKind.valueOf(args[0])));
        CudaBuffer buffer = device.allocate(1 << 20)) {
      byte[] bytes = new byte[1 << 20];
      Arrays.fill(bytes, FILL);
      buffer.upload(0, bytes);
      System.out.println(HexFormat.of().formatHex(buffer.allocation().name().encode()));
      System.in.read();
    }
  }
}
