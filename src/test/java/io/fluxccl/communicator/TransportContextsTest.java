// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import java.net.InetAddress;
import java.util.List;
import org.junit.jupiter.api.Test;

class TransportContextsTest {
  private final UncloseableTransports transports = new UncloseableTransports();

  @Test
  void shouldCloseTheOthersWhenSomeCannotBe() {
    RuntimeException first = new IllegalStateException("of the first");
    Error second = new InternalError("of the second");
    transports.refuse(Transport.SHM, first);
    transports.refuse(Transport.ETHERNET, second);
    transports.refuse(Transport.IB0, first);
    try (Device device = HostDevice.create()) {
      TransportContexts contexts =
          new TransportContexts(
              new TransportEnvironment(0, 1, 1, 1, device, InetAddress.getLoopbackAddress()),
              () -> List.of(transports));
      List<Transport> opened =
          List.of(Transport.SHM, Transport.ETHERNET, Transport.IB0, Transport.IB1);
      opened.forEach(contexts::of);

      assertThatThrownBy(contexts::close).isSameAs(first);

      assertThat(first.getSuppressed()).containsExactly(second);
      assertThat(transports.closed).containsExactlyInAnyOrder("SHM", "ETHERNET", "IB0", "IB1");
      assertThatThrownBy(() -> contexts.of(Transport.SHM)).isInstanceOf(InvalidUsage.class);
      contexts.close();
      assertThat(transports.closed).as("once each").hasSize(opened.size());
    }
  }
}
