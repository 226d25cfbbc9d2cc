// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

/**
 * Tests that transports must pass whose ranks map each other's memory.
 *
 * @param <R> the ranks of that transport
 */
public abstract class MappedConnectionContract<R extends ConnectedRanks>
    extends ConnectionContract<R> {
  /** The host of the ranks that {@link #openRanks()} returns. */
  protected static final long HOST = 11;

  private final TransportProvider provider;

  protected MappedConnectionContract(TransportProvider provider) {
    this.provider = provider;
  }

  /** Opens ranks of two hosts. */
  protected abstract R openOnTwoHosts();

  /** Opens ranks whose memory is mapped by its name, and unmapped when it is closed. */
  protected abstract R openMapping();

  /** Asserts that the ranks of {@link #openMapping} have no memory mapped. */
  protected void assertUnmapped(R mapping) {}

  @Override
  protected boolean hasAgent() {
    return false;
  }

  @Test
  void shouldBeFoundByTheServiceLoader() {
    Transport transport = ranks.transport();
    assertThat(ServiceLoader.load(TransportProvider.class).stream())
        .anyMatch(found -> found.type() == provider.getClass());
    assertThat(provider.unavailableBecause(transport)).isEmpty();
    TransportEnvironment environment = ConnectedRanks.environment(0, ranks.device(0));
    assertRefused(() -> provider.open(Transport.NET, environment));
  }

  @Test
  void shouldRefuseMemoryThatDoesNotFit() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory odd = ranks.seenByPeer(ranks.register(1, ranks.allocate(1, 64).slice(4, 32)));
    assertRefused(() -> link.updateAndSync(odd, 0, new AtomicLong(), 2));
    odd.close();
    assertRefused(() -> link.write(odd, 0, ranks.memory(0, 8), 0, 8));
    assertRefused(() -> ranks.context(0).register(ranks.allocate(1, 8)));
    assertThat(link.failure()).isNull();
  }

  private static CompletableFuture<Connection> connecting(Endpoint end, Endpoint other) {
    return end.connect(other.wire(), deadline());
  }

  @Test
  void shouldNameTheRankAndEthernetWhenThePeerIsOnAnotherHost() {
    try (R apart = openOnTwoHosts()) {
      RegisteredMemory memory = apart.memory(1, 64);
      assertThrows(TransportFailure.class, () -> apart.seenByPeer(memory), "rank 1", "ETHERNET");
      FluxCclException failure =
          failureOf(connecting(apart.endpoint(0, 1, 0), apart.endpoint(1, 0, 0)));
      assertFailureOf(1, TransportFailure.class, failure, "ETHERNET");
    }
  }

  @Test
  void shouldRefuseEndsThatDoNotFit() throws Exception {
    Endpoint end = ranks.endpoint(0, 1, 1);
    Endpoint other = ranks.endpoint(1, 0, 1);
    assertFailure(
        TransportFailure.class, failureOf(connecting(end, ranks.endpoint(1, 0, 2))), "tag=2");
    assertThat(failureOf(connecting(ranks.endpoint(0, 1, 1), ranks.endpoint(0, 1, 1))))
        .isInstanceOf(TransportFailure.class);
    Endpoint closed = ranks.endpoint(0, 1, 1);
    closed.close();
    assertThat(failureOf(connecting(closed, other))).isInstanceOf(Aborted.class);
    Endpoint twice = ranks.endpoint(0, 1, 1);
    get(connecting(twice, other));
    assertThat(failureOf(connecting(twice, other))).isInstanceOf(InvalidUsage.class);
    assertRefused(() -> ranks.endpoint(0, 2, 0));
    assertRefused(() -> ranks.context(0).createEndpoint(1, 0, EndpointConfig.of(Transport.NET)));
  }

  @Test
  void shouldRefuseMemoryThatItsOwnerHasClosed() {
    assertClosedMemoryIsRefused(ranks);
    try (R mapping = openMapping()) {
      assertClosedMemoryIsRefused(mapping);
    }
  }

  private void assertClosedMemoryIsRefused(R of) {
    DeviceBuffer buffer = of.allocate(1, 2 << 20);
    RegisteredMemory memory = of.register(1, buffer);
    buffer.close();
    of.seenByPeer(memory).close(); // the registration keeps it
    byte[] wire = of.wire(memory);
    memory.close();
    // A thread of a GPU's device frees the memory later.
    Awaitility.await()
        .untilAsserted(
            () ->
                assertThrows(
                    TransportFailure.class,
                    () -> of.seenByPeer(memory, wire, 2 << 20).close(),
                    "rank 1"));
  }

  @Test
  void shouldAbortConnectionsWhenTheContextIsClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    assertThat(link.failed()).isNotDone();
    ranks.context(0).close();
    ranks.context(0).close();
    assertThat(link.failure()).isInstanceOf(Aborted.class);
    assertRefused(() -> ranks.memory(0, 8));
  }

  @Test
  void shouldNeverUnmapUnderAWriterThatRacesWithClose() throws Exception {
    for (int round = 0; round < Rounds.of(10, 50); round++) {
      boolean closesMemory = round % 2 == 0;
      try (R mapping = openMapping()) {
        Transfer transfer = mapping.transfer(0, 1 << 16);
        CompletableFuture<Void> begun = new CompletableFuture<>();
        CompletableFuture<Void> loop =
            CompletableFuture.runAsync(
                () -> {
                  while (true) {
                    transfer.write(0, 0, 64).link().beginFlush();
                    transfer.link().flushedTicket();
                    begun.complete(null);
                  }
                });
        get(begun);
        (closesMemory ? (AutoCloseable) transfer.remote() : transfer.link()).close();
        assertThat(failureOf(loop)).isInstanceOf(closesMemory ? InvalidUsage.class : Aborted.class);
        transfer.remote().close();
        assertUnmapped(mapping);
      }
    }
  }

  @Test
  void shouldAllocateNothingInWriteUpdateAndSyncAndFlush() throws Exception {
    long allocated = leastAllocated(1000, 2_000, Thread.currentThread().getId());
    assertThat(allocated).as("bytes of 2000 rounds").isLessThan(1_000);
  }

  @Test
  void shouldLeakNoResourcesAfterManyRounds() throws Exception {
    for (int i = 0; i < 3; i++) {
      round();
    }
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 50; i++) {
      round();
    }
    before.assertNone(Duration.ofSeconds(60));
  }

  private void round() throws Exception {
    try (R mapping = openMapping()) {
      mapping.transfer(0, 100_000).check();
    }
  }
}
