package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.AdditionalAnswers.delegatesTo;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.verify;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.tcp.PortRange;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.security.SecureRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What can't be closed keeps nothing else from it. */
@Timeout(60)
class EthernetClosingTest {
  @Test
  void shouldCloseSocketsAndLoopWhenMemoryCannotBeLetGo() throws Exception {
    try (HostDevice device = HostDevice.create();
        DeviceBuffer memory = device.allocate(8)) {
      EthernetContext context =
          EthernetContext.open(
              Ranks.environment(0, device),
              NetworkStack.choose(),
              PortRange.ANY,
              StagingPolicy.WHERE_NEEDED);
      InetSocketAddress listening = context.listenAddress();
      DeviceBuffer bad = mock(DeviceBuffer.class, delegatesTo(memory));
      doThrow(new IllegalStateException("of a test")).when(bad).release();
      context.register(bad);
      assertThatThrownBy(context::close).hasMessage("of a test");
      assertThat(context.loop().terminationFuture().await(10_000)).isTrue();
      assertThatThrownBy(() -> new Socket(listening.getAddress(), listening.getPort()).close())
          .isInstanceOf(ConnectException.class);
      memory.release(); // for the mock, which did not
    }
  }

  @Test
  void shouldReleaseMemoryBehindAReadThatOutlastsItsClose() {
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    OwnedMemory memory = new OwnedMemory(new MemoryTable(new SecureRandom()), 1, buffer, null);
    assertThat(memory.beginUse()).isTrue();
    assertThatThrownBy(memory::close)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("has not ended");
    verify(buffer, never()).release();
    memory.endUse();
    verify(buffer).release();
  }
}
