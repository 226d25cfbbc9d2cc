// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostStream;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.TransportProvider;
import java.net.InetAddress;
import java.time.Duration;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ShmTransportTest {
  private static final long HOST = 11;
  private final Rank zero = new Rank(0, HOST, 100);
  private final Rank one = new Rank(1, HOST, 100);

  /** One rank with its device and its transport. */
  private static final class Rank implements AutoCloseable {
    final HostDevice device = HostDevice.create();
    final TransportEnvironment environment;
    final ShmContext context;

    Rank(int rank, long hostHash, long processHash) {
      environment =
          new TransportEnvironment(
              rank, 2, hostHash, processHash, device, InetAddress.getLoopbackAddress());
      context = (ShmContext) new ShmTransport().open(Transport.SHM, environment);
    }

    MemoryOrigin originOf(DeviceBuffer buffer) {
      return new MemoryOrigin(
          environment.rank(),
          environment.hostHash(),
          environment.processHash(),
          buffer.address(),
          buffer.size());
    }

    RegisteredMemory register(DeviceBuffer buffer) {
      return RegisteredMemory.local(
          originOf(buffer), buffer, Map.of(Transport.SHM, context.register(buffer)));
    }

    RegisteredMemory receive(RegisteredMemory memory) {
      MemoryHandle handle = context.open(memory.handle(Transport.SHM).wire(), memory.origin());
      return RegisteredMemory.remote(
          memory.origin(), TransportFlags.of(Transport.SHM), Map.of(Transport.SHM, handle));
    }

    Connection connect(Rank peer) {
      Endpoint here = endpoint(peer, 5);
      Endpoint there = peer.endpoint(this, 5);
      return here.connect(there.wire(), deadline()).join();
    }

    Endpoint endpoint(Rank peer, int tag) {
      return context.createEndpoint(peer.environment.rank(), tag, EndpointConfig.of(Transport.SHM));
    }

    @Override
    public void close() {
      context.close();
      device.close();
    }
  }

  private static Deadline deadline() {
    return Deadline.after(Duration.ofSeconds(60));
  }

  @AfterEach
  void close() {
    zero.close();
    one.close();
  }

  @Test
  void shouldBeFoundByTheServiceLoader() {
    assertThat(ServiceLoader.load(TransportProvider.class).stream())
        .anyMatch(provider -> provider.type() == ShmTransport.class);
    assertThat(new ShmTransport().unavailableBecause(Transport.SHM)).isEmpty();
    assertThatThrownBy(() -> new ShmTransport().open(Transport.NET, zero.environment))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldWriteAndSignalWithinOneProcessByAddress() {
    RegisteredMemory source = zero.register(zero.device.allocate(64));
    RegisteredMemory target = one.register(one.device.allocate(100_000));
    RegisteredMemory there = zero.receive(target);
    assertThat(there.address()).isEqualTo(target.address());
    HostMemory.putLong(source.address() + 8, 77);
    AtomicLong outbound = new AtomicLong();

    Connection connection = zero.connect(one);
    connection.write(there, 16, source, 8, 8).updateAndSync(there, 99_992, outbound, 3);

    assertThat(HostMemory.getLongAcquire(target.address() + 99_992)).isEqualTo(3);
    assertThat(HostMemory.getLong(target.address() + 16)).isEqualTo(77);
    assertThat(outbound).hasValue(3);
    assertThat(connection.flush(Duration.ofSeconds(1))).isCompleted();
    assertThat(connection.flushedTicket()).isGreaterThanOrEqualTo(connection.beginFlush());
    assertThat(zero.context.mappedSegments()).isZero();
  }

  @Test
  void shouldConnectToItself() {
    RegisteredMemory memory = zero.register(zero.device.allocate(64));
    HostMemory.putLong(memory.address(), 5);
    zero.connect(zero).write(memory, 8, memory, 0, 8);
    zero.connect(zero).write(zero.receive(memory), 16, memory, 0, 8);
    assertThat(HostMemory.getLong(memory.address() + 8)).isEqualTo(5);
    assertThat(HostMemory.getLong(memory.address() + 16)).isEqualTo(5);
  }

  @Test
  void shouldMapASegmentOnceForManyMemoriesOfAnotherProcess() {
    try (Rank other = new Rank(1, HOST, 999)) { // claims to be another process
      HostBuffer buffer = other.device.allocate(1 << 20);
      RegisteredMemory first = zero.receive(other.register(buffer.slice(0, 4096)));
      RegisteredMemory second = zero.receive(other.register(buffer.slice(8192, 64)));
      assertThat(zero.context.mappedSegments()).isEqualTo(1);
      assertThat(second.address() - first.address()).isEqualTo(8192);
      assertThat(first.address()).isNotEqualTo(buffer.address());
      HostMemory.putLong(second.address(), 9);
      assertThat(HostMemory.getLong(buffer.address() + 8192)).isEqualTo(9);
      first.close();
      first.close();
      assertThat(zero.context.mappedSegments()).isEqualTo(1);
      second.close();
      assertThat(zero.context.mappedSegments()).isZero();
    }
  }

  @Test
  void shouldRefuseRangesAndMemoriesThatDoNotFit() {
    RegisteredMemory source = zero.register(zero.device.allocate(64));
    RegisteredMemory there = zero.receive(one.register(one.device.allocate(64)));
    RegisteredMemory odd = zero.receive(one.register(one.device.allocate(64).slice(4, 32)));
    Connection connection = zero.connect(one);
    AtomicLong counter = new AtomicLong(1);
    assertUsage(() -> connection.write(there, 60, source, 0, 8));
    assertUsage(() -> connection.write(there, 0, source, 60, 8));
    assertUsage(() -> connection.write(there, -1, source, 0, 8));
    assertUsage(() -> connection.write(there, 0, source, 0, -1));
    assertUsage(() -> connection.write(there, 0, source, 0, Long.MAX_VALUE));
    assertUsage(() -> connection.write(source, 0, there, 0, 8));
    assertUsage(() -> connection.write(there, 0, there, 0, 8));
    assertUsage(() -> connection.updateAndSync(there, 4, counter, 2));
    assertUsage(() -> connection.updateAndSync(there, 64, counter, 2));
    assertUsage(() -> connection.updateAndSync(odd, 0, counter, 2));
    assertThat(counter).hasValue(1);
    there.close();
    assertUsage(() -> connection.write(there, 0, source, 0, 8));
    assertUsage(() -> zero.context.register(one.device.allocate(8)));
    assertThat(connection.failure()).isNull();
  }

  private static void assertUsage(org.assertj.core.api.ThrowableAssert.ThrowingCallable call) {
    assertThatThrownBy(call).isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldNameTheRankAndEthernetWhenThePeerIsOnAnotherHost() {
    try (Rank far = new Rank(1, HOST + 1, 5)) {
      RegisteredMemory memory = far.register(far.device.allocate(64));
      assertThatThrownBy(() -> zero.receive(memory))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 1")
          .hasMessageContaining("ETHERNET");
      assertThat(failure(zero.endpoint(far, 0).connect(far.endpoint(zero, 0).wire(), deadline())))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("ETHERNET")
          .extracting(FluxCclException::rank)
          .isEqualTo(1);
    }
  }

  @Test
  void shouldRefuseEndsThatDoNotFit() {
    assertThat(failure(zero.endpoint(one, 1).connect(one.endpoint(zero, 2).wire(), deadline())))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("tag=2");
    assertThat(failure(zero.endpoint(one, 1).connect(zero.endpoint(one, 1).wire(), deadline())))
        .isInstanceOf(TransportFailure.class);
    Endpoint closed = zero.endpoint(one, 1);
    closed.close();
    assertThat(failure(closed.connect(one.endpoint(zero, 1).wire(), deadline())))
        .isInstanceOf(Aborted.class);
    Endpoint twice = zero.endpoint(one, 1);
    twice.connect(one.endpoint(zero, 1).wire(), deadline()).join();
    assertThat(failure(twice.connect(one.endpoint(zero, 1).wire(), deadline())))
        .isInstanceOf(InvalidUsage.class);
    assertUsage(() -> zero.context.createEndpoint(2, 0, EndpointConfig.of(Transport.SHM)));
    assertUsage(() -> zero.context.createEndpoint(1, 0, EndpointConfig.of(Transport.NET)));
  }

  private static FluxCclException failure(CompletableFuture<?> future) {
    try {
      future.join();
      throw new AssertionError("it succeeded");
    } catch (CompletionException e) {
      return FluxCclException.from(e);
    }
  }

  @Test
  void shouldRefuseMemoryThatItsOwnerHasClosed() {
    HostBuffer buffer = one.device.allocate(1 << 20);
    RegisteredMemory memory = one.register(buffer);
    buffer.close();
    zero.receive(memory).close(); // the registration keeps it
    byte[] wire = memory.handle(Transport.SHM).wire();
    memory.close();
    assertThatThrownBy(() -> zero.context.open(wire, memory.origin()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1");
  }

  @Test
  void shouldEndWithItsReasonWhenClosed() {
    Connection connection = zero.connect(one);
    CompletableFuture<FluxCclException> failed = connection.failed();
    assertThat(failed).isNotDone();
    connection.close();
    connection.close();
    assertThat(failed.join()).isInstanceOf(Aborted.class).isSameAs(connection.failure());
    assertThatThrownBy(connection::beginFlush).isInstanceOf(Aborted.class);
    assertThat(failure(connection.flush(Duration.ofSeconds(1)))).isInstanceOf(Aborted.class);

    Connection other = zero.connect(one);
    zero.context.close();
    zero.context.close();
    assertThat(other.failure()).isInstanceOf(Aborted.class);
    assertUsage(() -> zero.context.register(zero.device.allocate(8)));
  }

  @Test
  void shouldKeepAMappingUntilKernelsThatMayUseItAreDone() throws Exception {
    try (Rank other = new Rank(1, HOST, 999)) {
      RegisteredMemory there = zero.receive(other.register(other.device.allocate(1 << 20)));
      long address = there.address();
      CountDownLatch end = new CountDownLatch(1);
      HostStream stream = zero.device.createStream("user");
      HostKernel kernel =
          HostKernel.of(
              "late",
              (thread, args) -> {
                end.await();
                HostMemory.putLong(address, 1);
              });
      CompletableFuture<Void> done = stream.launch(kernel, 1, 1, KernelArgs.NONE).completion();
      zero.context.close();
      assertThat(zero.context.mappedSegments()).isEqualTo(1);
      end.countDown();
      done.get(60, TimeUnit.SECONDS);
      Awaitility.await().until(() -> zero.context.mappedSegments() == 0);
    }
  }

  @Test
  void shouldNeverUnmapUnderAWriterThatRacesWithClose() throws Exception {
    for (int round = 0; round < Rounds.of(10, 50); round++) {
      try (Rank other = new Rank(1, HOST, 999);
          Rank writer = new Rank(0, HOST, 100)) {
        RegisteredMemory source = writer.register(writer.device.allocate(1 << 16));
        RegisteredMemory there = writer.receive(other.register(other.device.allocate(1 << 16)));
        Connection connection = writer.connect(other);
        CountDownLatch begun = new CountDownLatch(1);
        CompletableFuture<Void> loop =
            CompletableFuture.runAsync(
                () -> {
                  while (true) {
                    connection.write(there, 0, source, 0, 1 << 16);
                    begun.countDown();
                  }
                });
        assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
        there.close();
        assertThatThrownBy(() -> loop.get(60, TimeUnit.SECONDS))
            .hasCauseInstanceOf(InvalidUsage.class);
        assertThat(writer.context.mappedSegments()).isZero();
      }
    }
  }

  @Test
  void shouldAllocateNothingInWriteAndUpdateAndSync() {
    RegisteredMemory source = zero.register(zero.device.allocate(4096));
    RegisteredMemory there = zero.receive(one.register(one.device.allocate(8192)));
    Connection connection = zero.connect(one);
    AtomicLong counter = new AtomicLong();
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 10_000; i++) {
                connection
                    .write(there, 0, source, 0, 64)
                    .updateAndSync(there, 8184, counter, counter.get() + 1)
                    .beginFlush();
              }
            });
    assertThat(allocated).as("bytes of 10000 rounds").isLessThan(1_000);
  }

  @Test
  void shouldLeakNoResourcesAfterManyRounds() {
    round();
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 100; i++) {
      round();
    }
    before.assertNone(Duration.ofSeconds(10));
  }

  private static void round() {
    try (Rank a = new Rank(0, HOST, 100);
        Rank b = new Rank(1, HOST, 999)) {
      HostBuffer buffer = b.device.allocate(100_000);
      RegisteredMemory there = a.receive(b.register(buffer));
      HostBuffer small = a.device.allocate(8);
      RegisteredMemory source = a.register(small);
      a.connect(b).write(there, 0, source, 0, 8);
      small.close();
      buffer.close();
    }
  }
}
