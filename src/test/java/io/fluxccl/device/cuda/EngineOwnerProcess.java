// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.util.HexFormat;

/** Owns memory of an engine and prints its name and the tensor's offset, for tests that map it. */
final class EngineOwnerProcess {
  static final int SIZE = 3 << 20;

  private EngineOwnerProcess() {}

  /** Argument: a kind of {@link EngineMemory}. */
  public static void main(String[] args) throws Exception {
    CudaDevice device = CudaDevice.open(0);
    EngineMemory engine = new EngineMemory(device);
    CudaBuffer buffer = engine.allocate(EngineMemory.Kind.valueOf(args[0]), SIZE);
    buffer.upload(0, pattern());
    String name = HexFormat.of().formatHex(buffer.allocation().name().encode());
    System.out.println(name + " " + buffer.allocationOffset());
    System.in.read();
    byte[] found = new byte[8];
    buffer.download(SIZE - 8, found);
    System.out.println(HexFormat.of().formatHex(found));
    System.in.read();
  }

  static byte[] pattern() {
    byte[] bytes = new byte[SIZE];
    for (int i = 0; i < SIZE; i++) {
      bytes[i] = (byte) (i * 13 + (i >> 11));
    }
    return bytes;
  }
}
