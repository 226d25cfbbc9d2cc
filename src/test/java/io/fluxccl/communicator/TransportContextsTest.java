// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.net.InetAddress;
import java.util.ServiceConfigurationError;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class TransportContextsTest {
  @Test
  void shouldSearchProvidersOnceAndOnlyAsFarAsNeeded() {
    AtomicInteger lookups = new AtomicInteger();
    Iterable<TransportProvider> brokenAfterTheFirst =
        () ->
            Stream.iterate(0, i -> i + 1)
                .map(i -> i == 0 ? new MockTransports().provider : broken())
                .iterator();
    try (Device device = HostDevice.create();
        TransportContexts contexts =
            new TransportContexts(
                new TransportEnvironment(0, 1, 1, 1, device, InetAddress.getLoopbackAddress()),
                () -> {
                  lookups.incrementAndGet();
                  return brokenAfterTheFirst;
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
