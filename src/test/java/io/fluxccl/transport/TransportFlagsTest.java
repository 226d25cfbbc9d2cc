// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class TransportFlagsTest {
  @Test
  void shouldRoundTripThroughBits() {
    TransportFlags flags = TransportFlags.of(Transport.SHM, Transport.IB7).with(Transport.NET);
    assertThat(TransportFlags.ofBits(flags.bits())).isEqualTo(flags).hasSameHashCodeAs(flags);
    assertThat(flags.contains(Transport.IB7)).isTrue();
    assertThat(flags.contains(Transport.IB6)).isFalse();
    assertThat(flags.asSet()).containsExactly(Transport.SHM, Transport.IB7, Transport.NET);
  }

  @Test
  void shouldReadNames() {
    assertThat(TransportFlags.parse("IB1, ethernet").asSet())
        .containsExactly(Transport.IB1, Transport.ETHERNET);
    assertThat(TransportFlags.parse("ib").asSet())
        .hasSize(8)
        .contains(Transport.IB0, Transport.IB7);
    for (String wrong : new String[] {"", "IB8", "IB0,,IB1", "TCP"}) {
      assertRefused(() -> TransportFlags.parse(wrong), "ETHERNET");
    }
  }

  @Test
  void shouldRefuseBitsThatNameNoTransport() {
    assertRefused(() -> TransportFlags.ofBits(1 << Transport.values().length));
    assertRefused(() -> TransportFlags.ofBits(-1));
  }

  @Test
  void shouldRefuseEndpointsWithoutATransportOrTime() {
    assertRefused(() -> EndpointConfig.of(null));
    assertRefused(() -> EndpointConfig.of(Transport.SHM).withConnectTimeout(Duration.ZERO));
  }
}
