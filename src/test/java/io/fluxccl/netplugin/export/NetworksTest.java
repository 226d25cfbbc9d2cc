// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginProvider;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

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

  @ParameterizedTest
  @CsvSource({", , high", "' LOW ', , low", "'', no card, low"})
  void shouldOpenTheNamedOrElseTheBestAvailable(String name, String problem, String expected) {
    when(high.unavailableBecause()).thenReturn(Optional.ofNullable(problem));
    NetPluginProvider opened = expected.equals("high") ? high : low;
    when(opened.open()).thenReturn(network);
    assertThat(Networks.open(name, List.of(low, high))).isSameAs(network);
    verify(opened == high ? low : high, never()).open();
  }

  @Test
  void shouldSkipNetworksThatFailToOpenAndReportWhy() {
    when(high.open()).thenThrow(new TransportFailure(-1, "the card is broken"));
    when(low.unavailableBecause()).thenReturn(Optional.of("no cable"));
    assertThrows(
        TransportFailure.class,
        () -> Networks.open(null, List.of(low, high)),
        "high: the card is broken",
        "low: no cable");
  }

  @Test
  void shouldListAvailableNetworksIfTheWantedOneIsMissing() {
    assertRefused(
        () -> Networks.open("other", List.of(low, high)), "FLUXCCL_NET=other", "high, low");
  }

  @Test
  void shouldFindTheTcpNetwork() {
    assertThat(Networks.providers()).extracting(NetPluginProvider::name).contains("fluxccl");
  }
}
