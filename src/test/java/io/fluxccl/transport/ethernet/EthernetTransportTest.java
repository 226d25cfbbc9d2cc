package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.EndpointConfig;
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
        provider.open(Transport.ETHERNET, Ranks.environment(0, HostDevice.create()));
    assertThat(context.transport()).isEqualTo(Transport.ETHERNET);
    assertThatThrownBy(() -> context.createEndpoint(2, 0, EndpointConfig.of(Transport.ETHERNET)))
        .isInstanceOf(InvalidUsage.class);
    context.close();
    context.close();
    assertThatThrownBy(() -> context.createEndpoint(1, 0, EndpointConfig.of(Transport.ETHERNET)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    assertThatThrownBy(
            () -> provider.open(Transport.SHM, Ranks.environment(0, HostDevice.create())))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldUseNioWhenThatIsAskedFor() {
    System.setProperty(EthernetTransport.FORCE_NIO_PROPERTY, "true");
    try {
      assertThat(NetworkStack.choose()).isEqualTo(NetworkStack.NIO);
    } finally {
      System.clearProperty(EthernetTransport.FORCE_NIO_PROPERTY);
    }
  }

  @Test
  void shouldStageHostMemoryOnlyWhenThatIsAskedFor() {
    try (HostDevice device = HostDevice.create();
        DeviceBuffer buffer = device.allocate(8)) {
      assertThat(StagingPolicy.choose().stages(buffer)).isFalse();
      System.setProperty(EthernetTransport.STAGING_PROPERTY, "always");
      assertThat(StagingPolicy.choose().stages(buffer)).isTrue();
      System.setProperty(EthernetTransport.STAGING_PROPERTY, "never");
      assertThatThrownBy(StagingPolicy::choose)
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("auto or always");
    } finally {
      System.clearProperty(EthernetTransport.STAGING_PROPERTY);
    }
  }
}
