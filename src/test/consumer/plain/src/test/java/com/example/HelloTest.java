// SPDX-License-Identifier: Apache-2.0
package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.IntView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Transport;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.junit.jupiter.api.Test;

/** An all-reduce on the host, with the jar fluxccl and its dependencies alone. */
class HelloTest {
  private static final Executor THREADS = task -> new Thread(task).start();

  @Test
  void shouldSumOnTwoRanks() {
    List<LocalBootstrap> ranks = LocalBootstrap.group(2);
    CompletableFuture<Integer> zero =
        CompletableFuture.supplyAsync(() -> sum(ranks.get(0), 20), THREADS);
    CompletableFuture<Integer> one =
        CompletableFuture.supplyAsync(() -> sum(ranks.get(1), 22), THREADS);
    assertEquals(42, zero.join());
    assertEquals(42, one.join());
  }

  private static int sum(LocalBootstrap bootstrap, int value) {
    try (bootstrap;
        HostDevice device = HostDevice.create();
        Communicator communicator = Communicator.create(bootstrap, device);
        Collectives collectives = Collectives.create(communicator).join();
        IntView x = device.allocateInts(1)) {
      x.put(0, value);
      collectives.allReduce(x, ReduceOp.SUM).block(Duration.ofSeconds(30));
      return x.get(0);
    }
  }

  @Test
  void shouldNameTheJarThatATransportNeeds() {
    try (LocalBootstrap bootstrap = LocalBootstrap.group(1).get(0);
        HostDevice device = HostDevice.create();
        Communicator communicator = Communicator.create(bootstrap, device)) {
      String rdma = communicator.unusableBecause(Transport.IB0).orElseThrow();
      assertTrue(rdma.contains("io.fluxccl:fluxccl-rdma"), rdma);
      communicator.connectOnSetup(0, 0, Transport.NET);
      InvalidUsage error =
          (InvalidUsage)
              assertThrows(Exception.class, () -> communicator.setup().join()).getCause();
      assertTrue(error.getMessage().contains("io.fluxccl:fluxccl-nccl"), error.getMessage());
    }
  }

  @Test
  void shouldBeSmallerThanTwoMegabytes() throws Exception {
    Path jar =
        Path.of(Communicator.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    assertTrue(Files.size(jar) < 2_000_000, jar + " has " + Files.size(jar) + " bytes");
  }
}
