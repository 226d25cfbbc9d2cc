// SPDX-License-Identifier: Apache-2.0
package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.netty.util.Version;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import reactor.test.StepVerifier;

/** An application's first test, with FluxCCL's default dependencies and no JVM option. */
class AllReduceTest {
  @Test
  void shouldSumOnTwoRanks() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(4);
            x.upload(0, littleEndian().putInt(0, 21));
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              StepVerifier.create(collectives.allReduce(x, DataType.INT32, ReduceOp.SUM))
                  .expectComplete()
                  .verify(Duration.ofSeconds(30));
            }
            ByteBuffer result = littleEndian();
            x.download(0, result);
            assertEquals(42, result.getInt(0));
          });
    }
  }

  @Test
  void shouldJoinOverTcp() {
    BootstrapOptions options = BootstrapOptions.defaults();
    UniqueId id = TcpBootstrap.createUniqueId(options);
    try (TcpBootstrap zero = TcpBootstrap.create(0, 2, options);
        TcpBootstrap one = TcpBootstrap.create(1, 2, options)) {
      CompletableFuture.allOf(zero.initialize(id), one.initialize(id)).join();
      Deadline soon = Deadline.after(Duration.ofSeconds(30));
      CompletableFuture<Void> sent = zero.send(1, 7, new byte[] {42}, soon);
      assertEquals(42, one.recv(0, 7, soon).join()[0]);
      sent.join();
    }
  }

  @Test
  void shouldRunWithTheNettyThatItsBomChooses() {
    String version = Version.identify().get("netty-transport").artifactVersion();
    assertTrue(version.startsWith(System.getProperty("netty.line")), version);
    assertEquals(version, Version.identify().get("netty-codec").artifactVersion());
  }

  @Test
  void shouldNeedNoJvmOption() {
    List<String> options = ManagementFactory.getRuntimeMXBean().getInputArguments();
    assertFalse(
        options.stream().anyMatch(option -> option.startsWith("--add-")), options::toString);
  }

  @Test
  void shouldNameTheDependencyThatGpusNeed() {
    String message = assertThrows(DeviceFailure.class, () -> CudaDevice.open(0)).getMessage();
    assertTrue(message.contains("org.jcuda:jcuda:"), message);
  }

  @Test
  @Ranks(4)
  void shouldCountTheRanks(LocalRank rank, Collectives collectives) {
    try (IntView one = rank.device().allocateInts(1)) {
      one.put(0, 1);
      StepVerifier.create(collectives.allReduce(one, ReduceOp.SUM))
          .expectComplete()
          .verify(Duration.ofSeconds(30));
      assertEquals(4, one.get(0));
    }
  }

  private static ByteBuffer littleEndian() {
    return ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
  }
}
