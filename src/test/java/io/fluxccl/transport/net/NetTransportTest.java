// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.environment;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.plugin.NetChoice;
import io.fluxccl.transport.plugin.NetTransport;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@RequiresNativeLibrary
@Timeout(60)
@Tag("jdk")
class NetTransportTest {
  @TempDir private static Path folder;

  private final TransportProvider provider =
      ServiceLoader.load(TransportProvider.class).stream()
          .map(ServiceLoader.Provider::get)
          .filter(found -> found.transports().contains(Transport.NET))
          .findFirst()
          .orElseThrow();

  private String library;

  @BeforeEach
  void build() throws Exception {
    library = TestNet.library(folder, 11).toString();
  }

  @AfterEach
  void clear() {
    System.clearProperty(NetTransport.NETWORK_PROPERTY);
    System.clearProperty(NetTransport.LIBRARY_PROPERTY);
    System.clearProperty(NetTransport.DEVICES_PROPERTY);
    System.clearProperty(RenamedNetProvider.LIBRARY_PROPERTY);
  }

  /** Sets the properties that are not null. */
  private static void ask(String network, String plugin, String devices) {
    set(NetTransport.NETWORK_PROPERTY, network);
    set(NetTransport.LIBRARY_PROPERTY, plugin);
    set(NetTransport.DEVICES_PROPERTY, devices);
  }

  private String refusal() {
    return provider.unavailableBecause(Transport.NET).orElseThrow();
  }

  private static void set(String property, String value) {
    if (value != null) {
      System.setProperty(property, value);
    }
  }

  @Test
  void shouldDescribeAndOpenTheLibraryThatIsNamed() {
    ask(null, library, null);
    assertThat(provider.unavailableBecause(Transport.NET)).isEmpty();
    assertThat(provider.description(Transport.NET))
        .hasValue(
            "testnet ("
                + library
                + ", v11): test0 (10 Gb/s, HOST memory), test1 (10 Gb/s, HOST memory)");
    TransportContext context = provider.open(Transport.NET, environment(0, HostDevice.create()));
    assertThat(context.transport()).isEqualTo(Transport.NET);
    context.close();
    context.close();
    assertRefused(() -> provider.open(Transport.SHM, environment(0, HostDevice.create())));
  }

  @Test
  void shouldListTheSearchedNetworksIfNoneMatches() {
    ask("atlantis", null, null);
    assertThat(refusal()).contains("no network atlantis", "libnccl-net.so: ");
    ask("atlantis", library, null);
    assertThat(refusal()).contains("testnet (" + library + ", v11) has another name");
    ask("TestNet", library, null);
    assertThat(provider.unavailableBecause(Transport.NET)).isEmpty();
    ask("renamed", "none", null);
    assertThat(refusal()).contains("renamed: only a test wants it");
    assertThrows(
        TransportFailure.class,
        () -> provider.open(Transport.NET, environment(0, HostDevice.create())));
  }

  @Test
  void shouldUseFluxCclsOwnNetworksOnlyDirectly() throws Exception {
    Path own = Path.of("target", "ncclnet", "libnccl-net-fluxccl.so").toAbsolutePath();
    assumeTrue(Files.exists(own), "libnccl-net-fluxccl.so was not built: no C compiler");
    // The plugin is recognized under any file name, by its content.
    Path copy = Files.copy(own, folder.resolve("libnccl-net.so"));
    ask(null, copy.toString(), null);
    assertThat(refusal())
        .contains(copy + ": is FluxCCL's own plugin for NCCL", "NCCL_NET_PLUGIN=none");
    // As for NCCL in the same environment.
    ask("fluxccl", copy.toString(), null);
    assertThat(provider.unavailableBecause(Transport.NET)).isEmpty();
    assertThat(provider.description(Transport.NET).orElseThrow()).startsWith("fluxccl: ");
  }

  @Test
  void shouldUseANetworkInJavaByItsName() throws Exception {
    System.setProperty(RenamedNetProvider.LIBRARY_PROPERTY, library);
    ask("Renamed", null, "test1");
    assertThat(provider.unavailableBecause(Transport.NET)).isEmpty();
    assertThat(provider.description(Transport.NET))
        .hasValue("renamed: test1 (10 Gb/s, HOST memory)");
    try (NetRanks ranks = new NetRanks(NetChoice.fromEnvironment())) {
      assertThat(ranks.context(0).network().name()).isEqualTo("renamed");
      ranks.transfer(0, 100_000).check();
    }
  }

  @Test
  void shouldConnectRanksWithDifferentNumbersOfRails() throws Exception {
    try (NetRanks one = new NetRanks(new NetChoice(null, library, "1,0"));
        NetRanks other = new NetRanks(new NetChoice(null, library, "0"))) {
      Endpoint a = one.endpoint(0, 1, 0);
      Endpoint b = other.endpoint(1, 0, 0);
      CompletableFuture<Connection> toB = a.connect(b.wire(), deadline());
      CompletableFuture<Connection> toA = b.connect(a.wire(), deadline());
      get(get(toB).flush(LIMIT));
      get(get(toA).flush(LIMIT));
    }
  }

  @Test
  void shouldRefuseADeviceThatIsNotThere() {
    ask(null, library, "0,test7");
    assertThat(refusal()).contains("no device \"test7\"", "[test0, test1]");
  }

  @Test
  void shouldRefuseMemoryThatTheNetworkCannotReach() throws Exception {
    Device gpu = mock(Device.class);
    when(gpu.kind()).thenReturn(DeviceKind.CUDA);
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    when(buffer.device()).thenReturn(gpu);
    when(buffer.size()).thenReturn(8L);
    try (NetRanks ranks = new NetRanks(new NetChoice(null, library, null))) {
      assertRefused(() -> ranks.context(0).register(buffer), "CUDA");
    }
  }
}
