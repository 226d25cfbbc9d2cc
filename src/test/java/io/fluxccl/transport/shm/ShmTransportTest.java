// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.MappedConnectionContract;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import java.net.InetAddress;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
@Tag("jdk")
class ShmTransportTest extends MappedConnectionContract<ShmTransportTest.ShmRanks> {
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
  }

  ShmTransportTest() {
    super(new ShmTransport());
  }

  @Override
  protected ShmRanks openRanks() {
    return new ShmRanks(HOST, PROCESS);
  }

  @Override
  protected ShmRanks openOnTwoHosts() {
    return new ShmRanks(HOST + 1, PROCESS);
  }

  @Override
  protected ShmRanks openMapping() {
    return new ShmRanks(HOST, OTHER_PROCESS);
  }

  @Override
  protected void assertUnmapped(ShmRanks mapping) {
    assertThat(mapping.mappedSegments()).isZero();
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
    try (ShmRanks apart = openMapping()) {
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
  void shouldKeepAMappingUntilKernelsThatMayUseItAreDone() throws Exception {
    try (ShmRanks apart = openMapping()) {
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
}
