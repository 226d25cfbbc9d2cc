// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

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
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDeviceOptions;
import io.fluxccl.device.cuda.CudaMapping;
import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.AllocatedBytes;
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
import java.nio.LongBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
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

/** Tests of connections between ranks of one process, on any pair of GPUs. */
@Timeout(60)
abstract class CudaIpcContract {
  static final Duration SECONDS = Duration.ofSeconds(60);

  IpcRank zero;
  IpcRank one;

  /** The GPU of a rank. */
  abstract int gpuOf(int rank);

  /** How memory is allocated. */
  CudaMemoryKind memory() {
    return CudaMemoryKind.PLAIN;
  }

  private CudaDevice device(int rank) {
    return CudaDevice.open(gpuOf(rank), CudaDeviceOptions.DEFAULT.withMemory(memory()));
  }

  IpcRank open(int rank) {
    return new IpcRank(rank, device(rank));
  }

  @BeforeEach
  void open() {
    zero = open(0);
    one = open(1);
  }

  @AfterEach
  void close() {
    zero.close();
    one.close();
  }

  static FluxCclException failure(CompletableFuture<?> future) {
    try {
      future.get(60, TimeUnit.SECONDS);
    } catch (Exception e) {
      return FluxCclException.from(e);
    }
    throw new AssertionError("it succeeded");
  }

  static void assertUsage(org.assertj.core.api.ThrowableAssert.ThrowingCallable call) {
    assertThatThrownBy(call).isInstanceOf(InvalidUsage.class);
  }

  static void flush(Connection connection) throws Exception {
    connection.flush(SECONDS).get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldBeFoundByTheServiceLoader() {
    assertThat(ServiceLoader.load(TransportProvider.class).stream())
        .anyMatch(provider -> provider.type() == CudaIpcTransport.class);
    assertThat(new CudaIpcTransport().unavailableBecause(Transport.CUDA_IPC)).isEmpty();
    assertUsage(() -> new CudaIpcTransport().open(Transport.NET, zero.environment));
  }

  @Test
  void shouldMoveBytesBetweenManyPlacesOfAnySize() throws Exception {
    int size = 3 << 20;
    CudaBuffer from = zero.allocate(size);
    CudaBuffer to = one.allocate(size);
    byte[] sent = new byte[size];
    new Random(1).nextBytes(sent);
    from.upload(0, sent);
    RegisteredMemory source = zero.register(from);
    RegisteredMemory there = zero.receive(one.register(to));
    Connection connection = zero.connect(one);
    byte[] expected = new byte[size];
    int[][] copies = {{0, 0, 1}, {5, 17, 4096}, {1 << 20, 9, 1 << 20}, {size - 7, size - 7, 7}};
    for (int[] copy : copies) {
      connection.write(there, copy[0], source, copy[1], copy[2]);
      System.arraycopy(sent, copy[1], expected, copy[0], copy[2]);
    }
    connection.write(there, 0, source, 0, 0);
    flush(connection);
    byte[] arrived = new byte[size];
    to.download(0, arrived);
    assertThat(arrived).isEqualTo(expected);
  }

  @Test
  void shouldSignalAfterTheBytes() {
    int size = 8 << 20;
    CudaBuffer from = zero.allocate(size);
    CudaBuffer to = one.allocate(size);
    CudaBuffer word = one.allocate(64);
    RegisteredMemory source = zero.register(from);
    RegisteredMemory there = zero.receive(one.register(to));
    RegisteredMemory signal = zero.receive(one.register(word));
    Connection connection = zero.connect(one);
    AtomicLong outbound = new AtomicLong();
    for (long round = 1; round <= 20; round++) {
      putLong(from, size - 8, round);
      connection.write(there, 0, source, 0, size).updateAndSync(signal, 8, outbound, round);
      while (getLong(word, 8) < round) {
        Thread.onSpinWait();
      }
      assertThat(getLong(to, size - 8)).isEqualTo(round);
    }
    assertThat(outbound).hasValue(20);
    assertThat(getLong(word, 0)).isZero();
    assertThat(getLong(word, 16)).isZero();
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
    connection.write(memory, 8, memory, 0, 8).write(zero.receive(memory), 16, memory, 0, 8);
    flush(connection);
    assertThat(getLong(buffer, 8)).isEqualTo(5);
    assertThat(getLong(buffer, 16)).isEqualTo(5);
  }

  @Test
  void shouldPostFromManyThreadsThatNeverSawTheGpu() throws Exception {
    int threads = 4;
    int each = 2000;
    int words = threads * each;
    LongBuffer sent = LongBuffer.allocate(words);
    ByteBuffer bytes = ByteBuffer.allocate(words * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < words; i++) {
      sent.put(i, 1_000_000 + i);
    }
    bytes.asLongBuffer().put(sent.array());
    CudaBuffer from = zero.allocate(bytes.capacity());
    CudaBuffer to = one.allocate(2L * bytes.capacity());
    from.upload(0, bytes);
    RegisteredMemory source = zero.register(from);
    RegisteredMemory there = zero.receive(one.register(to));
    Connection connection = zero.connect(one);
    List<CompletableFuture<Void>> posters = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      int first = thread * each;
      posters.add(
          CompletableFuture.runAsync(
              () -> {
                for (int i = first; i < first + each; i++) {
                  long offset = (long) Long.BYTES * i;
                  connection
                      .write(there, offset, source, offset, Long.BYTES)
                      .updateAndSync(there, bytes.capacity() + offset, new AtomicLong(), i)
                      .beginFlush();
                }
                connection.flush(SECONDS).join();
              },
              task -> new Thread(task).start()));
    }
    CompletableFuture.allOf(posters.toArray(new CompletableFuture<?>[0])).get(40, TimeUnit.SECONDS);
    ByteBuffer arrived = ByteBuffer.allocate(2 * bytes.capacity()).order(ByteOrder.LITTLE_ENDIAN);
    to.download(0, arrived);
    for (int i = 0; i < words; i++) {
      assertThat(arrived.getLong(Long.BYTES * i)).isEqualTo(1_000_000 + i);
      assertThat(arrived.getLong(bytes.capacity() + Long.BYTES * i)).isEqualTo(i);
    }
    assertThat(connection.flushedTicket()).isEqualTo(words);
  }

  @Test
  void shouldGiveTicketsThatGrowAndAreDoneInOrder() {
    RegisteredMemory source = zero.register(zero.allocate(1 << 20));
    RegisteredMemory there = zero.receive(one.register(one.allocate(1 << 20)));
    CudaIpcConnection connection = zero.connect(one);
    assertThat(connection.flushedTicket()).isZero();
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      long last = 0;
      for (int i = 0; i < 100; i++) {
        long ticket = connection.write(there, 0, source, 0, 1 << 20).beginFlush();
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
  void shouldServeFourFlushesAtOnce() throws Exception {
    RegisteredMemory source = zero.register(zero.allocate(1 << 20));
    RegisteredMemory there = zero.receive(one.register(one.allocate(1 << 20)));
    CudaIpcConnection connection = zero.connect(one);
    List<CompletableFuture<Void>> flushes = new ArrayList<>();
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      for (int i = 0; i < 4; i++) {
        flushes.add(connection.write(there, 0, source, 0, 1 << 20).flush(SECONDS));
      }
      assertThat(flushes).noneMatch(CompletableFuture::isDone);
      stall.letGo();
      CompletableFuture.allOf(flushes.toArray(new CompletableFuture<?>[0]))
          .get(60, TimeUnit.SECONDS);
    }
  }

  @Test
  void shouldTimeOutAFlushAndKeepTheConnection() throws Exception {
    CudaBuffer to = one.allocate(64);
    CudaBuffer from = zero.allocate(64);
    putLong(from, 0, 9);
    RegisteredMemory source = zero.register(from);
    RegisteredMemory there = zero.receive(one.register(to));
    CudaIpcConnection connection = zero.connect(one);
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      connection.write(there, 0, source, 0, 8);
      CompletableFuture<Void> patient = connection.flush(SECONDS);
      FluxCclException late = failure(connection.flush(Duration.ofMillis(50)));
      assertThat(late)
          .isInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("rank 1")
          .hasMessageContaining("tag 5")
          .hasMessageContaining("50 ms");
      assertThat(late.rank()).isEqualTo(1);
      assertThat(connection.failure()).isNull();
      assertThat(patient).isNotDone();
      stall.letGo();
      patient.get(60, TimeUnit.SECONDS);
    }
    assertThat(getLong(to, 0)).isEqualTo(9);
  }

  @Test
  void shouldKeepMemoryUntilTheWorkIsDoneWhenClosedInFlight() {
    CudaBuffer from = zero.allocate(2 << 20);
    CudaBuffer to = one.allocate(2 << 20);
    RegisteredMemory source = zero.register(from);
    RegisteredMemory there = zero.receive(one.register(to));
    CudaMapping mapping = zero.device.map(to.allocation().name()); // one more user
    CudaIpcConnection connection = zero.connect(one);
    try (StreamBlocker stall = StreamBlocker.of(zero.device, connection.stream())) {
      connection.write(there, 0, source, 0, 2 << 20).beginFlush();
      CompletableFuture<Void> flush = connection.flush(SECONDS);
      zero.context.close();
      one.context.close();
      assertThat(failure(flush)).isInstanceOf(Aborted.class).isSameAs(connection.failure());
      assertThat(mapping.users()).isEqualTo(2);
      assertThat(from.allocation().users()).isEqualTo(2);
      stall.letGo();
      Awaitility.await().until(() -> mapping.users() == 1 && from.allocation().users() == 1);
    } finally {
      mapping.release();
    }
    assertThatThrownBy(connection::beginFlush).isInstanceOf(Aborted.class);
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
    assertThat(failure(connection.flush(SECONDS))).isInstanceOf(Aborted.class);

    Connection other = zero.connect(one);
    zero.context.close();
    zero.context.close();
    assertThat(other.failure()).isInstanceOf(Aborted.class);
    assertUsage(() -> zero.context.register(zero.allocate(8)));
  }

  @Test
  void shouldSurviveCloseUnderWriters() throws Exception {
    for (int round = 0; round < 20; round++) {
      RegisteredMemory source = zero.register(zero.allocate(1 << 16));
      RegisteredMemory there = zero.receive(one.register(one.allocate(1 << 16)));
      CudaIpcConnection connection = zero.connect(one);
      CountDownLatch begun = new CountDownLatch(2);
      List<CompletableFuture<Void>> writers = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        writers.add(
            CompletableFuture.runAsync(
                () -> {
                  while (true) {
                    connection.write(there, 0, source, 0, 64).beginFlush();
                    connection.flushedTicket();
                    begun.countDown();
                  }
                }));
      }
      assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
      if (round % 2 == 0) {
        there.close();
      } else {
        connection.close();
      }
      for (CompletableFuture<Void> writer : writers) {
        assertThat(failure(writer))
            .isInstanceOf(round % 2 == 0 ? InvalidUsage.class : Aborted.class);
      }
      connection.close();
      source.close();
      there.close();
    }
  }

  @Test
  void shouldRefuseRangesAndMemoriesThatDoNotFit() {
    RegisteredMemory source = zero.register(zero.allocate(64));
    RegisteredMemory there = zero.receive(one.register(one.allocate(64)));
    RegisteredMemory odd = zero.receive(one.register(one.allocate(64).slice(4, 32)));
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
    assertUsage(() -> zero.context.register(one.allocate(8)));
    assertThat(connection.failure()).isNull();
  }

  @Test
  void shouldRefuseMemoryOfTheHostWithAHint() {
    try (HostDevice host = HostDevice.create()) {
      assertThatThrownBy(() -> zero.context.register(host.allocate(64)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("SHM");
      TransportEnvironment onTheHost =
          new TransportEnvironment(0, 1, 1, 1, host, InetAddress.getLoopbackAddress());
      assertThatThrownBy(() -> new CudaIpcTransport().open(Transport.CUDA_IPC, onTheHost))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("SHM");
    }
  }

  @Test
  void shouldNameTheRankAndEthernetWhenThePeerIsOnAnotherHost() {
    try (IpcRank far = new IpcRank(1, device(1), HOST + 1, 5)) {
      RegisteredMemory memory = far.register(far.allocate(64));
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
    assertUsage(() -> zero.context.createEndpoint(2, 0, EndpointConfig.of(Transport.CUDA_IPC)));
    assertUsage(() -> zero.context.createEndpoint(1, 0, EndpointConfig.of(Transport.NET)));
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
    assertThatThrownBy(() -> zero.context.open(wire, memory.origin()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1");
  }

  @Test
  void shouldRefuseANameThatLiesAboutItsProcessOrItsSize() {
    RegisteredMemory memory = one.register(one.allocate(2 << 20));
    byte[] wire = memory.handle(Transport.CUDA_IPC).wire();
    byte[] otherNumber = wire.clone();
    otherNumber[MappedMemoryDescriptor.NAME_INDEX + 16] ^= 0x55;
    assertRefused(otherNumber, memory);
    byte[] otherProcess = wire.clone();
    otherProcess[MappedMemoryDescriptor.NAME_INDEX + 8] ^= 0x55;
    assertRefused(otherProcess, memory);
    byte[] larger = wire.clone();
    larger[MappedMemoryDescriptor.NAME_INDEX + 24 + 4] = 1;
    assertRefused(larger, memory);
  }

  private void assertRefused(byte[] wire, RegisteredMemory memory) {
    assertThatThrownBy(() -> zero.context.open(wire, memory.origin()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1");
  }

  @Test
  void shouldAllocateNothingInTheProxysCalls() {
    RegisteredMemory source = zero.register(zero.allocate(4096));
    RegisteredMemory there = zero.receive(one.register(one.allocate(8192)));
    Connection connection = zero.connect(one);
    AtomicLong counter = new AtomicLong();
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 5_000; i++) {
                long ticket =
                    connection
                        .write(there, 0, source, 0, 64)
                        .updateAndSync(there, 8184, counter, counter.get() + 1)
                        .beginFlush();
                while (i % 500 == 0 && connection.flushedTicket() < ticket) {
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
    int threads = Thread.activeCount();
    List<CudaBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 30; i++) {
      buffers.addAll(round());
    }
    Awaitility.await()
        .until(() -> buffers.stream().allMatch(buffer -> buffer.allocation().users() == 0));
    Awaitility.await().until(() -> Thread.activeCount() <= threads + 2);
  }

  private List<CudaBuffer> round() throws Exception {
    try (IpcRank a = open(0);
        IpcRank b = open(1)) {
      CudaBuffer large = b.allocate(2 << 20);
      CudaBuffer small = a.allocate(8);
      RegisteredMemory there = a.receive(b.register(large));
      Connection connection = a.connect(b);
      connection.write(there, 0, a.register(small), 0, 8);
      flush(connection);
      small.close();
      large.close();
      return List.of(small, large);
    }
  }

  @Test
  void shouldReportAFlushThatFailsAsTheConnectionsFailure() {
    CudaIpcConnection connection = zero.connect(one);
    connection.stream().close(); // as a device that is closed under its connections does
    FluxCclException reason = failure(connection.flush(SECONDS));
    assertThat(reason).isSameAs(connection.failure());
    assertThat(connection.failed()).isCompletedWithValue(reason);
    assertThatThrownBy(connection::beginFlush).isSameAs(reason);
  }
}
