// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static io.fluxccl.transport.cudaipc.IpcRank.HOST;
import static io.fluxccl.transport.cudaipc.IpcRank.deadline;
import static io.fluxccl.transport.cudaipc.IpcRank.getLong;
import static io.fluxccl.transport.cudaipc.IpcRank.putLong;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaMapping;
import io.fluxccl.device.cuda.StreamBlocker;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.mapped.MappedMemoryDescriptor;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of connections between ranks of one process, on any pair of GPUs. */
@ParameterizedClass
@EnumSource(IpcPlacement.class)
@Timeout(60)
abstract class CudaIpcContract {
  static final Duration SECONDS = Duration.ofSeconds(60);

  @Parameter IpcPlacement placement;

  private IpcRank zero;
  private IpcRank one;

  @BeforeEach
  void open() {
    zero = open(0);
    one = open(1);
  }

  private IpcRank open(int rank) {
    return new IpcRank(rank, placement.open(rank));
  }

  @AfterEach
  void close() {
    if (one != null) {
      zero.close();
      one.close();
    }
  }

  /** A connection of rank 0 to rank 1 with a buffer at each end, as rank 0 uses them. */
  private record Link(
      CudaBuffer from,
      CudaBuffer to,
      RegisteredMemory source,
      RegisteredMemory there,
      CudaIpcConnection connection) {
    Connection write(long bytes) {
      return connection.write(there, 0, source, 0, bytes);
    }
  }

  private Link link(long fromSize, long toSize) {
    CudaBuffer from = zero.allocate(fromSize);
    CudaBuffer to = one.allocate(toSize);
    RegisteredMemory there = zero.receive(one.register(to));
    return new Link(from, to, zero.register(from), there, zero.connect(one));
  }

  private Link link(long size) {
    return link(size, size);
  }

  static void flush(Connection connection) throws Exception {
    connection.flush(SECONDS).get(60, TimeUnit.SECONDS);
  }

  private static void awaitAll(List<CompletableFuture<Void>> futures) throws Exception {
    CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldBeFoundByTheServiceLoader() {
    assertThat(ServiceLoader.load(TransportProvider.class).stream())
        .anyMatch(provider -> provider.type() == CudaIpcTransport.class);
    assertThat(new CudaIpcTransport().unavailableBecause(Transport.CUDA_IPC)).isEmpty();
    assertRefused(() -> new CudaIpcTransport().open(Transport.NET, zero.environment));
  }

  @Test
  void shouldFindMemoryOfThisProcessByItsName() {
    CudaBuffer buffer = one.allocate(4096);
    RegisteredMemory there = zero.receive(one.register(buffer.slice(512, 64)));
    assertThat(there.address()).isEqualTo(buffer.address() + 512);
  }

  @Test
  void shouldConnectToItself() throws Exception {
    CudaBuffer buffer = zero.allocate(64);
    putLong(buffer, 0, 5);
    RegisteredMemory memory = zero.register(buffer);
    Connection connection = zero.connect(zero);
    connection.write(memory, 8, memory, 0, 8).write(memory, 64, memory, 64, 0);
    connection.write(zero.receive(memory), 16, memory, 0, 8);
    flush(connection);
    assertThat(getLong(buffer, 8)).isEqualTo(5);
    assertThat(getLong(buffer, 16)).isEqualTo(5);
  }

  @Test
  void shouldPostFromManyThreadsThatNeverSawTheGpu() throws Exception {
    int each = 2000;
    int words = 4 * each;
    int half = words * Long.BYTES;
    Link link = link(half, 2L * half);
    ByteBuffer bytes = ByteBuffer.allocate(half).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < words; i++) {
      bytes.putLong(1_000_000 + i);
    }
    link.from.upload(0, bytes.flip());
    List<CompletableFuture<Void>> posters = new ArrayList<>();
    for (int first = 0; first < words; first += each) {
      int begin = first;
      Runnable posts =
          () -> {
            for (long i = begin; i < begin + each; i++) {
              long at = Long.BYTES * i;
              link.connection
                  .write(link.there, at, link.source, at, Long.BYTES)
                  .updateAndSync(link.there, half + at, new AtomicLong(), i)
                  .beginFlush();
            }
            link.connection.flush(SECONDS).join();
          };
      posters.add(CompletableFuture.runAsync(posts, task -> new Thread(task).start()));
    }
    awaitAll(posters);
    ByteBuffer arrived = ByteBuffer.allocate(2 * half).order(ByteOrder.LITTLE_ENDIAN);
    link.to.download(0, arrived);
    for (int i = 0; i < words; i++) {
      assertThat(arrived.getLong(Long.BYTES * i)).isEqualTo(1_000_000 + i);
      assertThat(arrived.getLong(half + Long.BYTES * i)).isEqualTo(i);
    }
    assertThat(link.connection.flushedTicket()).isEqualTo(words);
  }

  @Test
  void shouldGiveTicketsThatGrowAndAreDoneInOrder() {
    Link link = link(1 << 20);
    CudaIpcConnection connection = link.connection;
    assertThat(connection.flushedTicket()).isZero();
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      long last = 0;
      for (int i = 0; i < 100; i++) {
        long ticket = link.write(1 << 20).beginFlush();
        assertThat(ticket).isGreaterThan(last);
        last = ticket;
      }
      assertThat(connection.flushedTicket()).isZero();
      stall.letGo();
      long seen = 0;
      while (seen < last) {
        long now = connection.flushedTicket();
        assertThat(now).isBetween(seen, last);
        seen = now;
      }
    }
    connection.close();
    assertThat(connection.flushedTicket()).isEqualTo(100);
  }

  @Test
  void shouldTimeOutAFlushAndKeepTheConnection() throws Exception {
    Link link = link(64);
    putLong(link.from, 0, 9);
    CudaIpcConnection connection = link.connection;
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      CompletableFuture<Void> patient = link.write(8).flush(SECONDS);
      CompletableFuture<Void> late = connection.flush(Duration.ofMillis(50));
      assertThat(assertFails(late, io.fluxccl.Timeout.class, "rank 1", "tag 5", "50 ms").rank())
          .isEqualTo(1);
      assertThat(connection.failure()).isNull();
      assertThat(patient).isNotDone();
      stall.letGo();
      patient.get(60, TimeUnit.SECONDS);
    }
    assertThat(getLong(link.to, 0)).isEqualTo(9);
  }

  @Test
  void shouldKeepMemoryUntilTheWorkIsDoneWhenClosedInFlight() {
    Link link = link(2 << 20);
    CudaIpcConnection connection = link.connection;
    CudaMapping mapping = zero.device.map(link.to.allocation().name()); // one more user
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      link.write(2 << 20).beginFlush();
      CompletableFuture<Void> flush = connection.flush(SECONDS);
      zero.context.close();
      one.context.close();
      assertThat(assertFails(flush, Aborted.class)).isSameAs(connection.failure());
      assertThat(mapping.users()).isEqualTo(2);
      assertThat(link.from.allocation().users()).isEqualTo(2);
      stall.letGo();
      Awaitility.await().until(() -> mapping.users() == 1 && link.from.allocation().users() == 1);
    } finally {
      mapping.release();
    }
    assertThrows(Aborted.class, connection::beginFlush);
  }

  @Test
  void shouldEndWithItsReasonWhenClosed() {
    Connection connection = zero.connect(one);
    CompletableFuture<FluxCclException> failed = connection.failed();
    assertThat(failed).isNotDone();
    connection.close();
    connection.close();
    assertThat(failed.join()).isInstanceOf(Aborted.class).isSameAs(connection.failure());
    assertThrows(Aborted.class, connection::beginFlush);
    assertFails(connection.flush(SECONDS), Aborted.class);

    Connection other = zero.connect(one);
    zero.context.close();
    zero.context.close();
    assertThat(other.failure()).isInstanceOf(Aborted.class);
    assertRefused(() -> zero.context.register(zero.allocate(8)));
  }

  @Test
  void shouldSurviveCloseUnderWriters() throws Exception {
    for (int round = 0; round < 20; round++) {
      Link link = link(1 << 16);
      CountDownLatch begun = new CountDownLatch(2);
      Runnable writes =
          () -> {
            while (true) {
              link.write(64).beginFlush();
              link.connection.flushedTicket();
              begun.countDown();
            }
          };
      List<CompletableFuture<Void>> writers =
          List.of(CompletableFuture.runAsync(writes), CompletableFuture.runAsync(writes));
      assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
      boolean closesMemory = round % 2 == 0;
      (closesMemory ? (AutoCloseable) link.there : link.connection).close();
      for (CompletableFuture<Void> writer : writers) {
        assertFails(writer, closesMemory ? InvalidUsage.class : Aborted.class);
      }
      link.connection.close();
      link.source.close();
      link.there.close();
    }
  }

  @Test
  void shouldRefuseRangesAndMemoriesThatDoNotFit() {
    Link link = link(64);
    RegisteredMemory source = link.source;
    RegisteredMemory there = link.there;
    RegisteredMemory odd = zero.receive(one.register(one.allocate(64).slice(4, 32)));
    Connection connection = link.connection;
    AtomicLong counter = new AtomicLong(1);
    assertRefused(() -> connection.write(there, 60, source, 0, 8));
    assertRefused(() -> connection.write(there, 0, source, 60, 8));
    assertRefused(() -> connection.write(there, -1, source, 0, 8));
    assertRefused(() -> connection.write(there, 0, source, 0, -1));
    assertRefused(() -> connection.write(there, 0, source, 0, Long.MAX_VALUE));
    assertRefused(() -> connection.write(source, 0, there, 0, 8));
    assertRefused(() -> connection.write(there, 0, there, 0, 8));
    assertRefused(() -> connection.updateAndSync(there, 4, counter, 2));
    assertRefused(() -> connection.updateAndSync(there, 64, counter, 2));
    assertRefused(() -> connection.updateAndSync(odd, 0, counter, 2));
    assertThat(counter).hasValue(1);
    there.close();
    assertRefused(() -> connection.write(there, 0, source, 0, 8));
    assertRefused(() -> zero.context.register(one.allocate(8)));
    assertThat(connection.failure()).isNull();
  }

  @Test
  void shouldRefuseMemoryOfTheHostWithAHint() {
    try (HostDevice host = HostDevice.create()) {
      assertRefused(() -> zero.context.register(host.allocate(64)), "SHM");
      TransportEnvironment onTheHost =
          new TransportEnvironment(0, 1, 1, 1, host, InetAddress.getLoopbackAddress());
      assertRefused(() -> new CudaIpcTransport().open(Transport.CUDA_IPC, onTheHost), "SHM");
    }
  }

  @Test
  void shouldNameTheRankAndEthernetWhenThePeerIsOnAnotherHost() {
    try (IpcRank far = new IpcRank(1, placement.open(1), HOST + 1, 5)) {
      RegisteredMemory memory = far.register(far.allocate(64));
      assertThrows(TransportFailure.class, () -> zero.receive(memory), "rank 1", "ETHERNET");
      CompletableFuture<?> connected =
          zero.endpoint(far, 0).connect(far.endpoint(zero, 0).wire(), deadline());
      assertThat(assertFails(connected, TransportFailure.class, "ETHERNET").rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldRefuseEndsThatDoNotFit() {
    Endpoint end = zero.endpoint(one, 1);
    byte[] fitting = one.endpoint(zero, 1).wire();
    assertFails(
        end.connect(one.endpoint(zero, 2).wire(), deadline()), TransportFailure.class, "tag=2");
    assertFails(
        zero.endpoint(one, 1).connect(zero.endpoint(one, 1).wire(), deadline()),
        TransportFailure.class);
    Endpoint closed = zero.endpoint(one, 1);
    closed.close();
    assertFails(closed.connect(fitting, deadline()), Aborted.class);
    Endpoint twice = zero.endpoint(one, 1);
    twice.connect(fitting, deadline()).join();
    assertFails(twice.connect(fitting, deadline()), InvalidUsage.class);
    assertRefused(() -> zero.context.createEndpoint(2, 0, IpcRank.config()));
    assertRefused(() -> zero.context.createEndpoint(1, 0, EndpointConfig.of(Transport.NET)));
  }

  @Test
  void shouldRefuseMemoryThatItsOwnerHasClosed() {
    CudaBuffer buffer = one.allocate(2 << 20);
    RegisteredMemory memory = one.register(buffer);
    buffer.close();
    zero.receive(memory).close(); // the registration keeps it
    byte[] wire = memory.handle(Transport.CUDA_IPC).wire();
    memory.close();
    Awaitility.await().until(() -> buffer.allocation().users() == 0);
    assertThrows(TransportFailure.class, () -> zero.context.open(wire, memory.origin()), "rank 1");
  }

  @Test
  void shouldRefuseANameThatLiesAboutItsProcessOrItsSize() {
    RegisteredMemory memory = one.register(one.allocate(2 << 20));
    int process = 8;
    int number = 16;
    int highSize = 24 + 4;
    for (int offset : new int[] {process, number, highSize}) {
      byte[] wire = memory.handle(Transport.CUDA_IPC).wire().clone();
      wire[MappedMemoryDescriptor.NAME_INDEX + offset] ^= 0x55;
      assertThrows(
          TransportFailure.class, () -> zero.context.open(wire, memory.origin()), "rank 1");
    }
  }

  @Test
  void shouldAllocateNothingInTheProxysCalls() {
    Link link = link(4096, 8192);
    AtomicLong counter = new AtomicLong();
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 5_000; i++) {
                long ticket =
                    link.connection
                        .write(link.there, 0, link.source, 0, 64)
                        .updateAndSync(link.there, 8184, counter, counter.get() + 1)
                        .beginFlush();
                while (i % 500 == 0 && link.connection.flushedTicket() < ticket) {
                  Thread.onSpinWait();
                }
              }
            });
    assertThat(allocated).as("bytes of 5000 rounds").isLessThan(1_000);
  }

  @Test
  void shouldReleaseBuffersAndThreadsAfterManyRounds() throws Exception {
    for (int i = 0; i < 3; i++) {
      round();
    }
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 30; i++) {
      round();
    }
    before.assertNone(SECONDS);
  }

  private void round() throws Exception {
    try (IpcRank a = open(0);
        IpcRank b = open(1);
        CudaBuffer large = b.allocate(2 << 20);
        CudaBuffer small = a.allocate(8)) {
      RegisteredMemory there = a.receive(b.register(large));
      Connection connection = a.connect(b);
      connection.write(there, 0, a.register(small), 0, 8);
      flush(connection);
    }
  }

  @Test
  void shouldReportAFlushThatFailsAsTheConnectionsFailure() {
    CudaIpcConnection connection = zero.connect(one);
    connection.stream().close(); // as a device that is closed under its connections does
    FluxCclException reason = failureOf(connection.flush(SECONDS));
    assertThat(reason).isSameAs(connection.failure());
    assertThat(connection.failed()).isCompletedWithValue(reason);
    assertThatThrownBy(connection::beginFlush).isSameAs(reason);
  }
}
