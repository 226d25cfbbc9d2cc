// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.transport.cudaipc.IpcRank.HOST;
import static io.fluxccl.transport.cudaipc.IpcRank.getLong;
import static io.fluxccl.transport.cudaipc.IpcRank.putLong;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDeviceOptions;
import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests of connections between ranks of two processes. */
@Tag("multiprocess")
@Timeout(120)
abstract class CudaIpcProcessContract {
  static final int SIZE = 4 << 20;

  /**
   * Rank 1: prints its memory handles, waits for a signal in the first word, prints the received
   * data.
   */
  static final class Receiver {
    public static void main(String[] args) throws InterruptedException {
      CudaDevice device = open(Integer.parseInt(args[0]), CudaMemoryKind.valueOf(args[1]));
      IpcRank rank = new IpcRank(1, device, HOST, ProcessHandle.current().pid());
      CudaBuffer large = device.allocate(SIZE);
      CudaBuffer small = device.allocate(4096).slice(1024, 512);
      System.out.println(hex(rank.register(large).serialize()));
      System.out.println(hex(rank.register(small).serialize()));
      System.out.println(hex(rank.context.createEndpoint(0, 5, IpcRank.config()).wire()));
      for (long signal = 1; ; signal++) {
        while (getLong(small, 8) < signal) {
          Thread.onSpinWait();
        }
        System.out.println(getLong(large, SIZE - 8) + " " + getLong(small, 16));
      }
    }
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  abstract int gpuOf(int rank);

  /** How memory is allocated. */
  CudaMemoryKind memory() {
    return CudaMemoryKind.PLAIN;
  }

  private static CudaDevice open(int gpu, CudaMemoryKind memory) {
    return CudaDevice.open(gpu, CudaDeviceOptions.DEFAULT.withMemory(memory));
  }

  RegisteredMemoryCodec.Decoded sent(ProcessRank child) throws Exception {
    return RegisteredMemoryCodec.decode(HexFormat.of().parseHex(child.readLine()), 1);
  }

  static RegisteredMemory receive(IpcRank rank, RegisteredMemoryCodec.Decoded sent) {
    return rank.receive(sent.wires().get(Transport.CUDA_IPC), sent.origin());
  }

  @Test
  void shouldWriteAndSignalToAnotherProcessAndFlushAfterItIsKilled() throws Exception {
    try (IpcRank rank = new IpcRank(0, open(gpuOf(0), memory()));
        CudaBuffer local = rank.allocate(SIZE);
        ProcessRank child =
            TestJvms.of(1, Receiver.class, Integer.toString(gpuOf(1)), memory().name())
                .jvmOptions("-Xmx256m")
                .startRank(0)) {
      RegisteredMemory large = receive(rank, sent(child));
      RegisteredMemory small = receive(rank, sent(child));
      RegisteredMemory source = rank.register(local);
      CudaIpcConnection connection = rank.connect(1, HexFormat.of().parseHex(child.readLine()));
      AtomicLong counter = new AtomicLong();
      for (long round = 1; round <= 10; round++) {
        putLong(local, SIZE - 8, 4711 * round);
        connection
            .write(large, 0, source, 0, SIZE)
            .write(small, 16, source, SIZE - 8, 8)
            .updateAndSync(small, 8, counter, round);
        assertThat(child.readLine()).isEqualTo(4711 * round + " " + 4711 * round);
      }

      child.kill();
      long ticket = connection.write(large, 0, source, 0, SIZE).beginFlush();
      connection.flush(Duration.ofSeconds(20)).get(60, TimeUnit.SECONDS);
      assertThat(connection.flushedTicket()).isGreaterThanOrEqualTo(ticket);
      large.close();
      small.close();
    }
  }
}
