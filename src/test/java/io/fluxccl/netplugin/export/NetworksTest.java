// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class NetworksTest {
  private final NetPluginProvider low = provider("low", 1);
  private final NetPluginProvider high = provider("high", 2);
  private final NetPlugin network = mock(NetPlugin.class);

  private static NetPluginProvider provider(String name, int priority) {
    NetPluginProvider provider = mock(NetPluginProvider.class);
    when(provider.name()).thenReturn(name);
    when(provider.priority()).thenReturn(priority);
    when(provider.unavailableBecause()).thenReturn(Optional.empty());
    return provider;
  }

  @Test
  void shouldOpenTheOneWithTheHighestPriority() {
    when(high.open()).thenReturn(network);
    assertThat(Networks.open(null, List.of(low, high))).isSameAs(network);
    verify(low, never()).open();
  }

  @Test
  void shouldOpenTheOneThatIsNamed() {
    when(low.open()).thenReturn(network);
    assertThat(Networks.open(" LOW ", List.of(low, high))).isSameAs(network);
    verify(high, never()).open();
  }

  @Test
  void shouldSkipUnavailableNetworks() {
    when(high.unavailableBecause()).thenReturn(Optional.of("no card"));
    when(low.open()).thenReturn(network);
    assertThat(Networks.open("", List.of(low, high))).isSameAs(network);
    verify(high, never()).open();
  }

  @Test
  void shouldSkipNetworksThatFailToOpenAndReportWhy() {
    when(high.open()).thenThrow(new TransportFailure(-1, "the card is broken"));
    when(low.unavailableBecause()).thenReturn(Optional.of("no cable"));
    assertThatThrownBy(() -> Networks.open(null, List.of(low, high)))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("high: the card is broken")
        .hasMessageContaining("low: no cable");
  }

  @Test
  void shouldListAvailableNetworksIfTheWantedOneIsMissing() {
    assertThatThrownBy(() -> Networks.open("other", List.of(low, high)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("FLUXCCL_NET=other")
        .hasMessageContaining("high, low");
  }

  @Test
  void shouldFindTheTcpNetwork() {
    assertThat(Networks.providers()).extracting(NetPluginProvider::name).contains("fluxccl");
  }
}
