// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.reactive.ReactiveNet;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.testing.TestNetwork;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** The code of docs/10-network-plugins.md. */
@RequiresNativeLibrary
@ExtendWith(TestNetwork.class)
class NetworkPluginsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @TempDir private Path folder;

  @Test
  void shouldWriteOverNet() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            Communicator communicator = rank.communicator();
            int peer = 1 - rank.rank();
            DeviceBuffer buffer = rank.device().allocate(1024);
            HostMemory.fill(buffer.address(), 512, (byte) (rank.rank() + 1));

            NonblockingFuture<Connection> link =
                communicator.connectOnSetup(peer, 0, EndpointConfig.of(Transport.NET));
            RegisteredMemory mine =
                communicator.registerMemory(buffer, TransportFlags.of(Transport.NET));
            communicator.sendMemoryOnSetup(mine, peer, 0);
            NonblockingFuture<RegisteredMemory> theirs = communicator.recvMemoryOnSetup(peer, 0);
            communicator.setup().join();
            link.join().write(theirs.join(), 512, mine, 0, 512).flush(LONG).join();

            rank.bootstrap().barrier(Deadline.after(LONG)).join();
            assertThat(HostMemory.getInt(buffer.address() + 1020))
                .isEqualTo((peer + 1) * 0x01010101);
            rank.bootstrap().barrier(Deadline.after(LONG)).join();
          });
    }
  }

  @Test
  void shouldReturnProperties() throws Exception {
    String library = TestNet.library(folder, 11).toString();
    try (NetPlugin plugin = NativeNetPlugin.open(library)) {
      for (int device = 0; device < plugin.devices(); device++) {
        System.out.println(plugin.properties(device));
      }
    }
    try (NetPlugin plugin = NativeNetPlugin.open(library)) {
      assertThat(plugin.properties(1).name()).isEqualTo("test1");
    }
  }

  @Test
  void shouldSendReactively() throws Exception {
    Duration limit = LONG;
    long size = 4096;
    ByteBuffer source = BufferUtil.allocateDirectAligned(4096, 64);
    ByteBuffer target = BufferUtil.allocateDirectAligned(4096, 64);
    long from = BufferUtil.address(source.putInt(0, 77));
    long to = BufferUtil.address(target);
    try (NetPlugin plugin = NativeNetPlugin.open(TestNet.library(folder, 8).toString());
        ReactiveNet net = ReactiveNet.of(plugin)) {
      Mono<Long> message =
          net.listen(0, limit)
              .flatMap(
                  listener ->
                      Mono.zip(
                          net.connect(0, listener.handle(), limit), net.accept(listener, limit)))
              .flatMap(
                  ends ->
                      Mono.zip(
                              net.register(ends.getT1(), from, size, PointerType.HOST, limit),
                              net.register(ends.getT2(), to, size, PointerType.HOST, limit))
                          .flatMap(
                              memory ->
                                  Mono.zip(
                                      net.send(ends.getT1(), from, size, 0, memory.getT1(), limit),
                                      net.receive(
                                          ends.getT2(), to, size, 0, memory.getT2(), limit))))
              .map(sizes -> sizes.getT2());
      StepVerifier.create(message).expectNext(size).expectComplete().verify(LONG);
      assertThat(target.getInt(0)).isEqualTo(77);
    }
  }
}
