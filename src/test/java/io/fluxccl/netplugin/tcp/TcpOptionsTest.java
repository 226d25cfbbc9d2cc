// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.tcp.PortRange;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TcpOptionsTest {
  private static TcpOptions read(Map<String, String> environment) {
    return TcpOptions.fromEnvironment(Settings.of(environment));
  }

  @Test
  void shouldHaveDefaultsThatWork() {
    assertThat(read(Map.of())).isEqualTo(TcpOptions.DEFAULT);
  }

  @Test
  void shouldReadTheEnvironment() {
    TcpOptions options =
        read(
            Map.of(
                "FLUXCCL_NET_IFNAME", "=eth1",
                "NCCL_SOCKET_IFNAME", "ib",
                "NCCL_SOCKET_FAMILY", "AF_INET6",
                "FLUXCCL_NET_PORT_RANGE", "40000-40010",
                "FLUXCCL_NET_STREAMS", "8",
                "FLUXCCL_NET_THREADS", "3",
                "FLUXCCL_NET_TIMEOUT", "2.5",
                "FLUXCCL_NET_SPEED", "25000",
                "FLUXCCL_NET_TABLE", "/tmp/table",
                "FLUXCCL_NET_JMX", "1"));
    assertThat(options.interfaces().wants("eth1")).isTrue();
    assertThat(options.interfaces().wants("ib0")).isFalse();
    assertThat(options.family()).isEqualTo(TcpOptions.Family.IPV6);
    assertThat(options.ports()).isEqualTo(new PortRange(40000, 40010));
    assertThat(options.streams()).isEqualTo(8);
    assertThat(options.threads()).isEqualTo(3);
    assertThat(options.timeout()).isEqualTo(Duration.ofMillis(2500));
    assertThat(options.speedMbps()).isEqualTo(25000);
    assertThat(options.table()).isEqualTo(new TableOptions(Path.of("/tmp/table"), true));
  }

  @ParameterizedTest
  @CsvSource({
    "FLUXCCL_NET_PORT_RANGE, 10",
    "FLUXCCL_NET_PORT_RANGE, 20-10",
    "FLUXCCL_NET_STREAMS, many",
    "FLUXCCL_NET_TIMEOUT, soon"
  })
  void shouldNameTheVariableThatIsWrong(String name, String value) {
    assertRefused(() -> read(Map.of(name, value)), name + "=" + value);
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "33", "-1"})
  void shouldRefuseAnImpossibleNumberOfStreams(String streams) {
    assertRefused(
        () -> read(Map.of("FLUXCCL_NET_STREAMS", streams)),
        "FLUXCCL_NET_STREAMS=" + streams + ": give 1 to 32");
    assertRefused(
        () -> TcpOptions.DEFAULT.withStreams(Integer.parseInt(streams), 1),
        "streams=" + streams + "; give 1 to 32");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ';',
      value = {
        "eth,ib; eth0; true",
        "eth,ib; ib3; true",
        "eth,ib; lo; false",
        "=eth0; eth0; true",
        "=eth0; eth01; false",
        "^eth; eth0; false",
        "^eth; ib0; true",
        "^=eth0; eth01; true",
        "'' ; docker0; false",
        "'' ; eth0; true"
      })
  void shouldChooseInterfacesAsNcclDoes(String filter, String name, boolean wanted) {
    assertThat(InterfaceFilter.parse(filter).wants(name)).isEqualTo(wanted);
  }

  @Test
  void shouldCoverAMessageWithPartsExactlyOnce() {
    for (int streams = 1; streams <= TcpOptions.MAX_STREAMS; streams++) {
      for (long size : new long[] {65536, 65537, 100_000, 1 << 20, (1L << 33) + 7}) {
        assertThat(WireDescriptor.partAt(size, streams, 0)).isZero();
        assertThat(WireDescriptor.partAt(size, streams, streams)).isEqualTo(size);
        for (int i = 0; i < streams; i++) {
          assertThat(WireDescriptor.partAt(size, streams, i + 1))
              .isGreaterThanOrEqualTo(WireDescriptor.partAt(size, streams, i));
        }
      }
    }
  }
}
