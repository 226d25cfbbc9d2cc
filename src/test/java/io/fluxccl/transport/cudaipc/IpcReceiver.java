// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.transport.Contents.getLong;

import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import java.util.HexFormat;

/**
 * Rank 1 in its own process: prints its memory handles and the address of its endpoint, waits for a
 * signal in the first word, prints the received data.
 */
final class IpcReceiver {
  static final int SIZE = 4 << 20;

  private IpcReceiver() {}

  /** Argument: an {@link IpcPlacement}. */
  public static void main(String[] args) throws InterruptedException {
    IpcRank rank = new IpcRank(1, IpcPlacement.valueOf(args[0]).open(1));
    RegisteredMemory large = rank.register(rank.device.allocate(SIZE));
    RegisteredMemory small = rank.register(rank.device.allocate(4096).slice(1024, 512));
    System.out.println(hex(large.serialize()));
    System.out.println(hex(small.serialize()));
    System.out.println(hex(rank.endpoint().wire()));
    for (long signal = 1; ; signal++) {
      while (getLong(small, 8) < signal) {
        Thread.onSpinWait();
      }
      System.out.println(getLong(large, SIZE - 8) + " " + getLong(small, 16));
    }
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  /** Returns the next memory that the process has printed. */
  static RegisteredMemoryCodec.Decoded sent(ProcessRank process) throws Exception {
    return RegisteredMemoryCodec.decode(HexFormat.of().parseHex(process.readLine()), 1);
  }

  static RegisteredMemory receive(IpcRank rank, RegisteredMemoryCodec.Decoded sent) {
    return ConnectedRanks.opened(rank.context, sent.wires().get(Transport.CUDA_IPC), sent.origin());
  }

  static RegisteredMemory receive(IpcRank rank, ProcessRank process) throws Exception {
    return receive(rank, sent(process));
  }

  static CudaIpcConnection connect(IpcRank rank, ProcessRank process) throws Exception {
    return rank.connect(HexFormat.of().parseHex(process.readLine()));
  }
}
