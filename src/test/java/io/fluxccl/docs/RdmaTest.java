// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** The code of docs/9-rdma.md. */
@RequiresRdma
@Ranks(value = 2, leakCheck = false)
class RdmaTest {
  @Test
  void shouldWriteOverIb0(LocalRank rank) {
    Communicator communicator = rank.communicator();
    int peer = 1 - rank.rank();
    DeviceBuffer buffer = rank.device().allocate(1024);
    HostMemory.fill(buffer.address(), 512, (byte) (rank.rank() + 1));

    EndpointConfig config =
        EndpointConfig.of(Transport.IB0).withRdma(RdmaOptions.DEFAULT.withMaxMessage(256 << 10));
    NonblockingFuture<Connection> link = communicator.connectOnSetup(peer, 0, config);
    RegisteredMemory mine = communicator.registerMemory(buffer, TransportFlags.of(Transport.IB0));
    communicator.sendMemoryOnSetup(mine, peer, 0);
    NonblockingFuture<RegisteredMemory> theirs = communicator.recvMemoryOnSetup(peer, 0);
    communicator.setup().join();
    link.join().write(theirs.join(), 512, mine, 0, 512).flush(Duration.ofSeconds(20)).join();

    rank.awaitAll();
    assertThat(HostMemory.getInt(buffer.address() + 1020)).isEqualTo((peer + 1) * 0x01010101);
    rank.awaitAll();
  }
}
