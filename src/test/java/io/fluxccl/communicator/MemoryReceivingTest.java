// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.mockito.AdditionalAnswers;

@Ranks(value = 2, leakCheck = false)
class MemoryReceivingTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @Test
  void shouldOpenMemoryOnABlockingThread(LocalRanks ranks) {
    Communicator receiver = ranks.ranks().get(1).communicator();
    NonblockingFuture<RegisteredMemory> memory = receiver.recvMemoryOnSetup(0, 3);
    CompletableFuture<String> thread = memory.thenApply(opened -> Thread.currentThread().getName());
    CompletableFuture<Void> received = receiver.setup(LONG);
    send(ranks.ranks().get(0), TransportFlags.of(Transport.SHM));
    assertThat(received).succeedsWithin(LONG);
    assertThat(thread).succeedsWithin(LONG).asString().startsWith("fluxccl-blocking");
    memory.join().close();
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldUseAnotherTransportIfOneCannotBeOpened(boolean other, LocalRanks ranks)
      throws Exception {
    try (Communicator receiver =
        Communicator.create(
            withoutSockets(ranks.ranks().get(1).bootstrap()), ranks.ranks().get(1).device())) {
      NonblockingFuture<RegisteredMemory> memory = receiver.recvMemoryOnSetup(0, 3);
      CompletableFuture<Void> received = receiver.setup(LONG);
      send(
          ranks.ranks().get(0),
          other
              ? TransportFlags.of(Transport.SHM, Transport.ETHERNET)
              : TransportFlags.of(Transport.ETHERNET));
      if (other) {
        assertThat(received).succeedsWithin(LONG);
        assertThat(memory.join().isMapped()).isTrue();
        memory.join().close();
      } else {
        String what = "recvMemoryOnSetup(rank=0, tag=3)";
        assertFails(received, FluxCclException.class, what, "192.0.2.1");
      }
    }
  }

  private static void send(LocalRank rank, TransportFlags transports) {
    RegisteredMemory mine =
        rank.communicator().registerMemory(rank.device().allocate(64), transports);
    rank.communicator().sendMemoryOnSetup(mine, 1, 3);
    assertThat(rank.communicator().setup(LONG)).succeedsWithin(LONG);
  }

  /** Wraps a bootstrap; its host address is not of this host, so no socket can listen there. */
  private static Bootstrap withoutSockets(Bootstrap bootstrap) throws UnknownHostException {
    Bootstrap elsewhere = mock(Bootstrap.class, AdditionalAnswers.delegatesTo(bootstrap));
    InetAddress documentation = InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 1});
    doReturn(documentation).when(elsewhere).hostAddress();
    return elsewhere;
  }
}
