// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.net.InetAddress;
import java.util.List;
import java.util.ServiceConfigurationError;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class TransportContextsTest {
  private final UncloseableTransports transports = new UncloseableTransports();

  @Test
  void shouldCloseOtherContextsIfSomeFailToClose() {
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

  @Test
  void shouldSearchProvidersOnceAndOnlyAsFarAsNeeded() {
    AtomicInteger lookups = new AtomicInteger();
    Iterable<TransportProvider> brokenBehindTheFirst =
        () ->
            Stream.iterate(0, i -> i + 1)
                .map(i -> i == 0 ? (TransportProvider) transports : broken())
                .iterator();
    try (Device device = HostDevice.create();
        TransportContexts contexts =
            new TransportContexts(
                new TransportEnvironment(0, 1, 1, 1, device, InetAddress.getLoopbackAddress()),
                () -> {
                  lookups.incrementAndGet();
                  return brokenBehindTheFirst;
                })) {
      assertThat(contexts.of(Transport.SHM)).isNotNull();
      assertThat(contexts.ifAvailable(Transport.ETHERNET)).isPresent();
      assertThat(lookups).hasValue(1);
    }
  }

  private static TransportProvider broken() {
    throw new ServiceConfigurationError("the class of a provider is missing");
  }
}
