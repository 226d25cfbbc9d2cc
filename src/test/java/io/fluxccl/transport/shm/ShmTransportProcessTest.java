// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import static io.fluxccl.testing.Failures.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import java.net.InetAddress;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("multiprocess")
@Timeout(60)
@Tag("jdk")
class ShmTransportProcessTest {
  private static final int SIZE = 1 << 20;

  /** Rank 1: prints its memory, waits for a signal in the first word, prints the received data. */
  static final class Receiver {
    public static void main(String[] args) throws InterruptedException {
      HostDevice device = HostDevice.create();
      TransportContext context = context(1, device);
      HostBuffer buffer = device.allocate(SIZE);
      System.out.println(hex(register(1, context, buffer).serialize()));
      System.out.println(hex(context.createEndpoint(0, 7, config()).wire()));
      SpinWait.awaitAtLeast(buffer.address(), 1, 0, 0);
      System.out.println(HostMemory.getLong(buffer.address() + SIZE - 8));
      Thread.currentThread().join(60_000);
    }
  }

  private static EndpointConfig config() {
    return EndpointConfig.of(Transport.SHM);
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  private static TransportContext context(int rank, HostDevice device) {
    return new ShmTransport()
        .open(
            Transport.SHM,
            new TransportEnvironment(
                rank,
                2,
                1,
                ProcessHandle.current().pid(),
                device,
                InetAddress.getLoopbackAddress()));
  }

  private static RegisteredMemory register(int rank, TransportContext context, HostBuffer buffer) {
    MemoryOrigin origin =
        new MemoryOrigin(rank, 1, ProcessHandle.current().pid(), buffer.address(), buffer.size());
    return RegisteredMemory.local(origin, buffer, Map.of(Transport.SHM, context.register(buffer)));
  }

  @Test
  void shouldWriteAndSignalToAnotherProcessAndStillWriteAfterItIsKilled() throws Exception {
    try (HostDevice device = HostDevice.create();
        TransportContext context = context(0, device);
        HostBuffer local = device.allocate(SIZE);
        ProcessRank child = TestJvms.start(Receiver.class)) {
      RegisteredMemoryCodec.Decoded sent =
          RegisteredMemoryCodec.decode(HexFormat.of().parseHex(child.readLine()), 1);
      byte[] wire = sent.wires().get(Transport.SHM);
      RegisteredMemory there =
          RegisteredMemory.remote(
              sent.origin(),
              TransportFlags.of(Transport.SHM),
              Map.of(Transport.SHM, context.open(wire, sent.origin())));
      RegisteredMemory source = register(0, context, local);
      Endpoint end = context.createEndpoint(1, 7, config());
      Connection connection =
          end.connect(
                  HexFormat.of().parseHex(child.readLine()), Deadline.after(Duration.ofSeconds(60)))
              .join();
      HostMemory.putLong(local.address() + SIZE - 8, 4711);

      connection.write(there, 8, source, 8, SIZE - 8).updateAndSync(there, 0, new AtomicLong(), 1);
      assertThat(child.readLine()).isEqualTo("4711");

      child.kill();
      connection.write(there, 8, source, 8, SIZE - 8);
      assertThat(HostMemory.getLong(there.address() + SIZE - 8)).isEqualTo(4711);
      there.close();
      assertFails(TransportFailure.class, () -> context.open(wire, sent.origin()), "rank 1");
    }
  }
}
