// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaMapping;
import io.fluxccl.device.cuda.CudaMemory;
import io.fluxccl.device.cuda.StreamBlocker;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.MappedConnectionContract;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.mapped.MappedMemoryDescriptor;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of connections between ranks of one process, on any pair of GPUs. */
@ParameterizedClass
@EnumSource(IpcPlacement.class)
@Timeout(60)
abstract class CudaIpcContract extends MappedConnectionContract<IpcRanks> {
  @Parameter IpcPlacement placement;

  CudaIpcContract() {
    super(new CudaIpcTransport());
  }

  private IpcRanks open(long hostOfOne) {
    return new IpcRanks(
        new IpcRank(0, placement.open(0)), new IpcRank(1, placement.open(1), hostOfOne));
  }

  @Override
  protected IpcRanks openRanks() {
    return open(IpcRank.HOST);
  }

  @Override
  protected IpcRanks openOnTwoHosts() {
    return open(IpcRank.HOST + 1);
  }

  @Override
  protected IpcRanks openMapping() {
    return openRanks();
  }

  /** The stream stores a ticket for each flush. */
  @Override
  protected boolean numbersFlushes() {
    return true;
  }

  @Override
  protected int manyWrites() {
    return 2_000;
  }

  @Override
  protected int signalRounds() {
    return Rounds.of(200, 2_000);
  }

  private static CudaIpcConnection link(Transfer transfer) {
    return (CudaIpcConnection) transfer.link();
  }

  private StreamBlocker block(CudaIpcConnection connection) {
    return StreamBlocker.of((CudaDevice) ranks.device(0), connection.stream());
  }

  @Test
  void shouldFindMemoryOfThisProcessByItsName() {
    RegisteredMemory slice = ranks.register(1, ranks.allocate(1, 4096).slice(512, 64));
    assertThat(ranks.seenByPeer(slice).address()).isEqualTo(slice.address());
  }

  @Test
  void shouldCountTheFlushesOfThreadsThatPostAtOnce() throws Exception {
    Transfer transfer = ranks.transfer(5, 32);
    CudaIpcConnection connection = link(transfer);
    inThreads(
        4,
        thread -> {
          for (int i = 0; i < 500; i++) {
            transfer.write(8L * thread, 8L * thread, 8).link().beginFlush();
          }
        });
    transfer.flush();
    assertThat(connection.flushedTicket()).isEqualTo(2_000);
  }

  @Test
  void shouldGiveTicketsThatGrowAndAreDoneInOrder() throws Exception {
    Transfer transfer = ranks.transfer(5, 1 << 20);
    CudaIpcConnection connection = link(transfer);
    assertThat(connection.flushedTicket()).isZero();
    try (StreamBlocker stall = block(connection)) {
      for (int i = 1; i <= 100; i++) {
        assertThat(transfer.write().link().beginFlush()).isEqualTo(i);
      }
      assertThat(connection.flushedTicket()).isZero();
      stall.letGo();
      for (long seen = 0; seen < 100; ) {
        long now = connection.flushedTicket();
        assertThat(now).isBetween(seen, 100L);
        seen = now;
      }
    }
    connection.close();
    assertThat(connection.flushedTicket()).isEqualTo(100);
  }

  @Test
  void shouldTimeOutAFlushAndKeepTheConnection() throws Exception {
    Transfer transfer = ranks.transfer(5, 64);
    CudaIpcConnection connection = link(transfer);
    try (StreamBlocker stall = block(connection)) {
      CompletableFuture<Void> patient = transfer.write().flushing();
      CompletableFuture<Void> late = connection.flush(Duration.ofMillis(50));
      assertFailureOf(1, io.fluxccl.Timeout.class, failureOf(late), "rank 1", "tag 5", "50 ms");
      assertThat(connection.failure()).isNull();
      assertThat(patient).isNotDone();
      stall.letGo();
      get(patient);
    }
    transfer.assertWritten();
  }

  private static CudaMemory allocation(RegisteredMemory memory) {
    return ((CudaBuffer) memory.buffer()).allocation();
  }

  @Test
  void shouldKeepMemoryUntilTheWorkIsDoneWhenClosedInFlight() throws Exception {
    Transfer transfer = ranks.transfer(5, 2 << 20);
    CudaIpcConnection connection = link(transfer);
    CudaMemory source = allocation(transfer.source());
    CudaDevice device = (CudaDevice) ranks.device(0);
    CudaMapping mapping = device.map(allocation(transfer.target()).name()); // one more user
    try (StreamBlocker stall = block(connection)) {
      transfer.write().link().beginFlush();
      CompletableFuture<Void> flush = transfer.flushing();
      ranks.context(0).close();
      ranks.context(1).close();
      assertThat(failureOf(flush)).isInstanceOf(Aborted.class).isSameAs(connection.failure());
      assertThat(mapping.users()).isEqualTo(2);
      assertThat(source.users()).isEqualTo(2);
      stall.letGo();
      Awaitility.await().until(() -> mapping.users() == 1 && source.users() == 1);
    } finally {
      mapping.release();
    }
    assertThatThrownBy(connection::beginFlush).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldRefuseMemoryOfTheHostWithAHint() {
    try (HostDevice host = HostDevice.create()) {
      assertRefused(() -> ranks.context(0).register(host.allocate(64)), "SHM");
      TransportEnvironment onTheHost = ConnectedRanks.environment(0, host);
      assertRefused(() -> new CudaIpcTransport().open(Transport.CUDA_IPC, onTheHost), "SHM");
    }
  }

  @Test
  void shouldRefuseANameThatLiesAboutItsProcessOrItsSize() {
    RegisteredMemory memory = ranks.memory(1, 2 << 20);
    int process = 8;
    int number = 16;
    int highSize = 24 + 4;
    for (int offset : new int[] {process, number, highSize}) {
      byte[] wire = ranks.wire(memory).clone();
      wire[MappedMemoryDescriptor.NAME_INDEX + offset] ^= 0x55;
      assertThrows(TransportFailure.class, () -> ranks.seenByPeer(memory, wire, 2 << 20), "rank 1");
    }
  }

  @Test
  void shouldReportAFlushThatFailsAsTheConnectionsFailure() throws Exception {
    CudaIpcConnection connection = link(ranks.transfer(5, 64));
    connection.stream().close(); // as a device that is closed under its connections does
    FluxCclException reason = failureOf(connection.flush(LIMIT));
    assertThat(reason).isSameAs(connection.failure());
    assertThat(connection.failed()).isCompletedWithValue(reason);
    assertThatThrownBy(connection::beginFlush).isSameAs(reason);
  }
}
