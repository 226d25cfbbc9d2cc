// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.transport.ConnectedRanks.environment;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportProvider;
import java.util.ServiceLoader;
import org.junit.jupiter.api.Test;

class EthernetTransportTest {
  @Test
  void shouldBeFoundAndOpened() {
    TransportProvider provider =
        ServiceLoader.load(TransportProvider.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(found -> found.transports().contains(Transport.ETHERNET))
            .findFirst()
            .orElseThrow();
    assertThat(provider.unavailableBecause(Transport.ETHERNET)).isEmpty();
    TransportContext context =
        provider.open(Transport.ETHERNET, environment(0, HostDevice.create()));
    assertThat(context.transport()).isEqualTo(Transport.ETHERNET);
    assertRefused(() -> context.createEndpoint(2, 0, EndpointConfig.of(Transport.ETHERNET)));
    context.close();
    context.close();
    assertRefused(
        () -> context.createEndpoint(1, 0, EndpointConfig.of(Transport.ETHERNET)), "closed");
    assertRefused(() -> provider.open(Transport.SHM, environment(0, HostDevice.create())));
  }

  @Test
  void shouldStageHostMemoryOnlyWhenThatIsAskedFor() {
    try (HostDevice device = HostDevice.create()) {
      assertThat(isStaged(device)).isFalse();
      System.setProperty(EthernetTransport.STAGING_PROPERTY, "always");
      assertThat(isStaged(device)).isTrue();
      System.setProperty(EthernetTransport.STAGING_PROPERTY, "never");
      assertRefused(() -> isStaged(device), "auto or always");
    } finally {
      System.clearProperty(EthernetTransport.STAGING_PROPERTY);
    }
  }

  private static boolean isStaged(HostDevice device) {
    try (NetContext context =
            (NetContext) new EthernetTransport().open(Transport.ETHERNET, environment(0, device));
        DeviceBuffer buffer = device.allocate(8);
        MemoryHandle memory = context.register(buffer)) {
      return ((NetMemoryHandle) memory).isStaged();
    }
  }
}
