// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.get;
import static io.fluxccl.transport.ConnectedRanks.opened;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@RequiresRdma
@Tag("multiprocess")
@Timeout(600)
class IbRankDeathTest {
  private static final int SIZE = 4 << 20;
  private static final int KILLS = Integer.getInteger("fluxccl.rdma.kills", 1);

  /** Names this process's IB0 to another one, whose list begins with devices of other tests. */
  private static Map<String, String> sameDevice() {
    return Map.of(RdmaDevices.VARIABLE, RdmaDevices.ofThisMachine().get(0).name());
  }

  /**
   * Rank 1: prints its memory and its end, reads and connects the peer's end, and waits to be
   * killed.
   */
  static final class Victim {
    public static void main(String[] args) throws Exception {
      HostDevice device = HostDevice.create();
      IbContext context = IbRanks.context(1, device);
      DeviceBuffer buffer = device.allocate(SIZE);
      System.out.println(hex(context.register(buffer).wire()));
      Endpoint end = context.createEndpoint(0, 0, EndpointConfig.of(Transport.IB0));
      System.out.println(hex(end.wire()));
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
      byte[] peer = HexFormat.of().parseHex(in.readLine());
      end.connect(peer, deadline(), () -> meet(System.out::println, in::readLine)).join();
      Thread.currentThread().join(300_000);
    }
  }

  private interface Say {
    void line(String line) throws IOException;
  }

  /** Tells the other rank that this one is ready, and waits for it to say so. */
  private static CompletableFuture<Void> meet(Say say, Callable<String> hear) {
    return CompletableFuture.runAsync(
        () -> {
          try {
            say.line("ready");
            assertThat(hear.call()).isEqualTo("ready");
          } catch (Exception e) {
            throw new CompletionException(e);
          }
        });
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  @Test
  void shouldFailInTimeWhenThePeerIsKilledInTheMiddle() throws Exception {
    for (int kill = 0; kill < KILLS; kill++) {
      killInTheMiddle();
    }
  }

  private static void killInTheMiddle() throws Exception {
    try (HostDevice device = HostDevice.create();
        IbContext context = IbRanks.context(0, device);
        DeviceBuffer buffer = device.allocate(SIZE);
        ProcessRank child =
            TestJvms.of(1, Victim.class)
                .jvmOptions("-XX:TieredStopAtLevel=1")
                .variables(sameDevice())
                .startRank(0)) {
      byte[] wire = HexFormat.of().parseHex(child.readLine());
      MemoryOrigin origin = new MemoryOrigin(1, 1, 1, 1, SIZE);
      RegisteredMemory there = opened(context, wire, origin);
      Endpoint end = context.createEndpoint(1, 0, EndpointConfig.of(Transport.IB0));
      byte[] peer = HexFormat.of().parseHex(child.readLine());
      child.sendLine(hex(end.wire()));
      Connection link =
          get(end.connect(peer, deadline(), () -> meet(child::sendLine, child::readLine)));
      RegisteredMemory source =
          RegisteredMemory.local(
              new MemoryOrigin(0, 1, 0, buffer.address(), SIZE),
              buffer,
              Map.of(Transport.IB0, context.register(buffer)));
      CompletableFuture<FluxCclException> writer =
          IbConnectionContract.writeUntilFailure(new Transfer(link, null, source, null, there));
      child.kill();
      FluxCclException reason = get(writer);
      assertFailureOf(1, TransportFailure.class, reason, "rank 1");
      assertThat(link.failure()).isSameAs(reason);
    }
  }
}
