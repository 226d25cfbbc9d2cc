// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

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
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.net.InetAddress;
import java.time.Duration;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
@Tag("jdk")
class ShmTransportTest extends ConnectionContract<ShmTransportTest.ShmRanks> {
  private static final long HOST = 11;
  private static final long PROCESS = 100;
  private static final long OTHER_PROCESS = 999;

  /** Two ranks of SHM, the second of which may claim to be elsewhere. */
  static final class ShmRanks extends ConnectedRanks {
    private final List<ShmContext> contexts;

    ShmRanks(long host, long process) {
      this(List.of(environment(0, HOST, PROCESS), environment(1, host, process)));
    }

    private ShmRanks(List<TransportEnvironment> environments) {
      super(environments);
      contexts =
          environments.stream()
              .map(environment -> (ShmContext) new ShmTransport().open(Transport.SHM, environment))
              .toList();
    }

    private static TransportEnvironment environment(int rank, long host, long process) {
      return new TransportEnvironment(
          rank, 2, host, process, HostDevice.create(), InetAddress.getLoopbackAddress());
    }

    @Override
    public ShmContext context(int rank) {
      return contexts.get(rank);
    }

    int mappedSegments() {
      return context(0).mappedSegments();
    }

    CompletableFuture<Connection> connecting(Endpoint end, Endpoint other) {
      return end.connect(other.wire(), deadline());
    }
  }

  @Override
  protected ShmRanks openRanks() {
    return new ShmRanks(HOST, PROCESS);
  }

  @Override
  protected boolean hasAgent() {
    return false;
  }

  @Test
  void shouldBeFoundByTheServiceLoader() {
    assertThat(ServiceLoader.load(TransportProvider.class).stream())
        .anyMatch(provider -> provider.type() == ShmTransport.class);
    assertThat(new ShmTransport().unavailableBecause(Transport.SHM)).isEmpty();
    TransportEnvironment environment = ConnectedRanks.environment(0, ranks.device(0));
    assertRefused(() -> new ShmTransport().open(Transport.NET, environment));
  }

  @Test
  void shouldWriteWithinOneProcessByAddressBeforeItReturns() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    assertThat(transfer.remote().address()).isEqualTo(transfer.target().address());
    transfer.write().assertWritten();
    assertThat(transfer.flushing()).isCompleted();
    assertThat(ranks.mappedSegments()).isZero();
  }

  @Test
  void shouldMapASegmentOnceForManyMemoriesOfAnotherProcess() {
    try (ShmRanks apart = new ShmRanks(HOST, OTHER_PROCESS)) {
      DeviceBuffer buffer = apart.allocate(1, 1 << 20);
      RegisteredMemory first = apart.seenByPeer(apart.register(1, buffer.slice(0, 4096)));
      RegisteredMemory second = apart.seenByPeer(apart.register(1, buffer.slice(8192, 64)));
      assertThat(apart.mappedSegments()).isEqualTo(1);
      assertThat(second.address() - first.address()).isEqualTo(8192);
      assertThat(first.address()).isNotEqualTo(buffer.address());
      HostMemory.putLong(second.address(), 9);
      assertThat(HostMemory.getLong(buffer.address() + 8192)).isEqualTo(9);
      first.close();
      first.close();
      assertThat(apart.mappedSegments()).isEqualTo(1);
      second.close();
      assertThat(apart.mappedSegments()).isZero();
    }
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

  @Test
  void shouldNameTheRankAndEthernetWhenThePeerIsOnAnotherHost() {
    try (ShmRanks apart = new ShmRanks(HOST + 1, PROCESS)) {
      RegisteredMemory memory = apart.memory(1, 64);
      assertThrows(TransportFailure.class, () -> apart.seenByPeer(memory), "rank 1", "ETHERNET");
      FluxCclException failure =
          failureOf(apart.connecting(apart.endpoint(0, 1, 0), apart.endpoint(1, 0, 0)));
      assertFailureOf(1, TransportFailure.class, failure, "ETHERNET");
    }
  }

  @Test
  void shouldRefuseEndsThatDoNotFit() throws Exception {
    Endpoint end = ranks.endpoint(0, 1, 1);
    Endpoint other = ranks.endpoint(1, 0, 1);
    assertFailure(
        TransportFailure.class, failureOf(ranks.connecting(end, ranks.endpoint(1, 0, 2))), "tag=2");
    assertThat(failureOf(ranks.connecting(ranks.endpoint(0, 1, 1), ranks.endpoint(0, 1, 1))))
        .isInstanceOf(TransportFailure.class);
    Endpoint closed = ranks.endpoint(0, 1, 1);
    closed.close();
    assertThat(failureOf(ranks.connecting(closed, other))).isInstanceOf(Aborted.class);
    Endpoint twice = ranks.endpoint(0, 1, 1);
    get(ranks.connecting(twice, other));
    assertThat(failureOf(ranks.connecting(twice, other))).isInstanceOf(InvalidUsage.class);
    assertRefused(() -> ranks.endpoint(0, 2, 0));
    assertRefused(() -> ranks.context(0).createEndpoint(1, 0, EndpointConfig.of(Transport.NET)));
  }

  @ParameterizedTest
  @ValueSource(longs = {PROCESS, OTHER_PROCESS})
  void shouldRefuseMemoryThatItsOwnerHasClosed(long process) {
    try (ShmRanks apart = new ShmRanks(HOST, process)) {
      DeviceBuffer buffer = apart.allocate(1, 1 << 20);
      RegisteredMemory memory = apart.register(1, buffer);
      buffer.close();
      apart.seenByPeer(memory).close(); // the registration keeps it
      byte[] wire = apart.wire(memory);
      memory.close();
      assertThrows(TransportFailure.class, () -> apart.seenByPeer(memory, wire, 1 << 20), "rank 1");
    }
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
  void shouldKeepAMappingUntilKernelsThatMayUseItAreDone() throws Exception {
    try (ShmRanks apart = new ShmRanks(HOST, OTHER_PROCESS)) {
      long address = apart.seenByPeer(apart.memory(1, 1 << 20)).address();
      CountDownLatch end = new CountDownLatch(1);
      HostKernel kernel =
          HostKernel.of(
              "late",
              (thread, args) -> {
                end.await();
                HostMemory.putLong(address, 1);
              });
      CompletableFuture<Void> done =
          apart.device(0).createStream("user").launch(kernel, 1, 1, KernelArgs.NONE).completion();
      apart.context(0).close();
      assertThat(apart.mappedSegments()).isEqualTo(1);
      end.countDown();
      get(done);
      Awaitility.await().until(() -> apart.mappedSegments() == 0);
    }
  }

  @Test
  void shouldNeverUnmapUnderAWriterThatRacesWithClose() throws Exception {
    for (int round = 0; round < Rounds.of(10, 50); round++) {
      try (ShmRanks apart = new ShmRanks(HOST, OTHER_PROCESS)) {
        Transfer transfer = apart.transfer(0, 1 << 16);
        CompletableFuture<Void> begun = new CompletableFuture<>();
        CompletableFuture<Void> loop =
            CompletableFuture.runAsync(
                () -> {
                  while (true) {
                    transfer.write();
                    begun.complete(null);
                  }
                });
        get(begun);
        transfer.remote().close();
        assertThat(failureOf(loop)).isInstanceOf(InvalidUsage.class);
        assertThat(apart.mappedSegments()).isZero();
      }
    }
  }

  @Test
  void shouldAllocateNothingInWriteAndUpdateAndSync() throws Exception {
    long allocated = leastAllocated(10, 2_000, Thread.currentThread().getId());
    assertThat(allocated).as("bytes of 2000 rounds").isLessThan(1_000);
  }

  @Test
  void shouldLeakNoResourcesAfterManyRounds() throws Exception {
    round();
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 100; i++) {
      round();
    }
    before.assertNone(Duration.ofSeconds(10));
  }

  private static void round() throws Exception {
    try (ShmRanks apart = new ShmRanks(HOST, OTHER_PROCESS)) {
      apart.transfer(0, 100_000).check();
    }
  }
}
