// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.transport.Contents.putLong;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of connections between ranks of two processes. */
@ParameterizedClass
@EnumSource(IpcPlacement.class)
@Tag("multiprocess")
@Timeout(120)
abstract class CudaIpcProcessContract {
  @Parameter IpcPlacement placement;

  @Test
  void shouldWriteAndSignalToAnotherProcessAndFlushAfterItIsKilled() throws Exception {
    try (IpcRank rank = new IpcRank(0, placement.open(0));
        CudaBuffer local = rank.device.allocate(IpcReceiver.SIZE);
        ProcessRank child =
            TestJvms.of(1, IpcReceiver.class, placement.name())
                .jvmOptions("-Xmx256m")
                .startRank(0)) {
      RegisteredMemory large = IpcReceiver.receive(rank, child);
      RegisteredMemory small = IpcReceiver.receive(rank, child);
      RegisteredMemory source = rank.register(local);
      CudaIpcConnection connection = IpcReceiver.connect(rank, child);
      AtomicLong counter = new AtomicLong();
      for (long round = 1; round <= 10; round++) {
        putLong(source, IpcReceiver.SIZE - 8, 4711 * round);
        connection
            .write(large, 0, source, 0, IpcReceiver.SIZE)
            .write(small, 16, source, IpcReceiver.SIZE - 8, 8)
            .updateAndSync(small, 8, counter, round);
        assertThat(child.readLine()).isEqualTo(4711 * round + " " + 4711 * round);
      }

      child.kill();
      long ticket = connection.write(large, 0, source, 0, IpcReceiver.SIZE).beginFlush();
      connection.flush(Duration.ofSeconds(20)).get(60, TimeUnit.SECONDS);
      assertThat(connection.flushedTicket()).isGreaterThanOrEqualTo(ticket);
      large.close();
      small.close();
    }
  }
}
