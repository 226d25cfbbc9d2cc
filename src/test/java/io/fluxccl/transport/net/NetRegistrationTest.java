// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.AdditionalAnswers.delegatesTo;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.timeout;
import static org.mockito.Mockito.verify;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Memory is released even if the network fails. */
@Timeout(120)
class NetRegistrationTest {
  private static final long RELEASE_MS = 10_000;

  private static DeviceBuffer watched(NetRanks ranks, long size) {
    return mock(DeviceBuffer.class, delegatesTo(ranks.allocate(0, size)));
  }

  @Test
  void shouldReleaseMemoryThatCannotBeRegisteredForAWrite() throws Exception {
    // One message, and a part of several.
    for (int size : new int[] {100_000, 3 << 20}) {
      FaultyNet net = new FaultyNet();
      try (NetRanks ranks = new NetRanks(net)) {
        DeviceBuffer buffer = watched(ranks, size);
        RegisteredMemory source = ranks.register(0, buffer);
        RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, size));
        Connection link = ranks.connect(0).get(0);
        net.refusedSize = size;
        link.write(remote, 0, source, 0, size);
        assertThat(get(link.failed()))
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("the memory can't be registered");
        source.close();
        verify(buffer, timeout(RELEASE_MS)).release();
      }
    }
  }

  @Test
  void shouldReleaseMemoryThatAConnectionCannotDeregister() throws Exception {
    int size = 100_000;
    FaultyNet net = new FaultyNet();
    try (NetRanks ranks = new NetRanks(net)) {
      DeviceBuffer buffer = watched(ranks, size);
      RegisteredMemory source = ranks.register(0, buffer);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, size));
      Connection link = ranks.connect(0).get(0);
      link.write(remote, 0, source, 0, size);
      get(link.flush(LIMIT));
      net.stuckSize = size;
      source.close();
      verify(buffer, timeout(RELEASE_MS)).release();
    }
  }

  @Test
  void shouldReleaseMemoryOfALinkThatCannotBeClosed() throws Exception {
    int size = 100_000;
    FaultyNet net = new FaultyNet();
    net.closesBadly = true;
    try (NetRanks ranks = new NetRanks(net)) {
      DeviceBuffer buffer = watched(ranks, size);
      RegisteredMemory source = ranks.register(0, buffer);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, size));
      Connection link = ranks.connect(0).get(0);
      link.write(remote, 0, source, 0, size);
      get(link.flush(LIMIT));
      source.close();
      link.close();
      verify(buffer, timeout(RELEASE_MS)).release();
    }
  }
}
