// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class JoinOptionsTest {
  private static final RankEnvironment PLACE = RankEnvironment.of(1, 2);

  private static JoinOptions from(Map<String, String> variables) {
    return JoinOptions.of(PLACE, Settings.of(variables));
  }

  @Test
  void shouldUseDefaultsIfVariablesAreBlankOrUnset() {
    JoinOptions options = from(Map.of("FLUXCCL_NETWORK", " ", "FLUXCCL_TIMEOUT", ""));
    assertThat(options.collectives()).isEqualTo(CollectivesOptions.DEFAULT);
    assertThat(options.collectives().networks()).isEqualTo(CollectivesOptions.NETWORKS);
    assertThat(options.joinTimeout()).isEqualTo(Duration.ofSeconds(30));
    assertThat(options.name()).isEmpty();
    assertThat(options.insecure()).isFalse();
  }

  @Test
  void shouldReadEveryOptionFromItsVariable() {
    assertThat(from(Map.of("FLUXCCL_LEAST_RANKS", "1", "FLUXCCL_REPLACEMENT_TIMEOUT", "2")))
        .isEqualTo(from(Map.of()).withLeastRanks(1).withReplacementTimeout(Duration.ofSeconds(2)));
    assertThat(from(Map.of("FLUXCCL_LIVENESS_TIMEOUT", "5")).livenessTimeout())
        .isEqualTo(Duration.ofSeconds(5));
    JoinOptions options =
        from(
            Map.of(
                "FLUXCCL_NAME", "chat",
                "FLUXCCL_JOIN_TIMEOUT", "90",
                "FLUXCCL_TIMEOUT", "0.25",
                "FLUXCCL_DEVICE", "host",
                "FLUXCCL_NETWORK", "IB0,ETHERNET",
                "FLUXCCL_TUNING", "/tuning",
                "FLUXCCL_CHECKS", "1",
                "FLUXCCL_CHECKSUM", "1",
                "FLUXCCL_INSECURE", "1"));
    assertThat(options.name()).isEqualTo("chat");
    assertThat(options.joinTimeout()).isEqualTo(Duration.ofSeconds(90));
    assertThat(options.device()).isEqualTo(DeviceChoice.HOST);
    assertThat(options.insecure()).isTrue();
    CollectivesOptions collectives = options.collectives();
    assertThat(collectives.timeout()).isEqualTo(Duration.ofMillis(250));
    assertThat(collectives.networks().asSet()).containsExactly(Transport.IB0, Transport.ETHERNET);
    assertThat(collectives.tuning()).hasValue(Path.of("/tuning"));
    assertThat(collectives.checked()).isTrue();
    assertThat(collectives.checksums()).isTrue();
  }

  @Test
  @SuppressWarnings("deprecation")
  void shouldAcceptTheFormerNamesOfTheReplacementTimeout() {
    JoinOptions former = from(Map.of("FLUXCCL_PATIENCE", "2"));
    assertThat(former.replacementTimeout()).isEqualTo(Duration.ofSeconds(2));
    assertThat(former.withPatience(Duration.ofSeconds(3)).patience())
        .isEqualTo(Duration.ofSeconds(3));
    assertThat(from(Map.of("FLUXCCL_PATIENCE", "2", "FLUXCCL_REPLACEMENT_TIMEOUT", "4")))
        .isEqualTo(from(Map.of("FLUXCCL_REPLACEMENT_TIMEOUT", "4")));
  }

  @ParameterizedTest
  @CsvSource({
    "FLUXCCL_NETWORK, SHM",
    "FLUXCCL_TIMEOUT, soon",
    "FLUXCCL_TIMEOUT, 1e400",
    "FLUXCCL_JOIN_TIMEOUT, 30s",
    "FLUXCCL_CHECKS, yes",
    "FLUXCCL_LEAST_RANKS, 3",
    "FLUXCCL_REPLACEMENT_TIMEOUT, -1",
    "FLUXCCL_PATIENCE, -1",
    "FLUXCCL_RECORDER, many",
    "FLUXCCL_DEVICE_TIMES, 2",
    "FLUXCCL_INSECURE, true"
  })
  void shouldNameTheInvalidVariable(String name, String value) {
    assertRefused(() -> from(Map.of(name, value)), name + "=" + value);
  }

  @ParameterizedTest
  @ValueSource(strings = {"FLUXCCL_TIMEOUT", "FLUXCCL_JOIN_TIMEOUT"})
  void shouldRefuseLimitsThatAreNotPositive(String name) {
    assertRefused(() -> from(Map.of(name, "-1")));
    assertRefused(() -> from(Map.of(name, "0")));
  }

  @Test
  void shouldRefuseWrongValuesWhenTheyAreGiven() {
    JoinOptions options = from(Map.of());
    assertRefused(() -> JoinOptions.of(2, 2));
    assertRefused(() -> options.withName("a b"), "name=a b");
    assertRefused(() -> options.withAddress("nowhere"), "nowhere");
    assertRefused(() -> options.withAddress("10.0.0.1:29500,nowhere"), "address=nowhere");
    assertRefused(() -> options.withDevice(null), "device=null");
  }

  @Test
  void shouldPreferValuesSetInCodeOverTheEnvironment() {
    JobSecret secret = JobSecret.random();
    JoinOptions options =
        from(Map.of("FLUXCCL_NAME", "chat", "FLUXCCL_TIMEOUT", "5"))
            .withName("search")
            .withTimeout(Duration.ofSeconds(1))
            .withAddress("127.0.0.1:29500,eth0:10.0.0.2:29500")
            .withSecret(secret);
    assertThat(options.name()).isEqualTo("search");
    assertThat(options.collectives().timeout()).isEqualTo(Duration.ofSeconds(1));
    assertThat(options.place().address()).hasValue("127.0.0.1:29500,eth0:10.0.0.2:29500");
    assertThat(options.place().secret()).hasValue(secret);
  }

  @Test
  void shouldCompareTheOptionsThatMustBeEqualOnAllRanks() {
    JoinOptions options = from(Map.of("FLUXCCL_DEVICE", "host"));
    Map<String, String> settings = options.settings();
    assertThat(settings).containsEntry("FLUXCCL_CHECKS", "0").containsEntry("transport", "any");
    CollectivesOptions calls = options.collectives();
    for (CollectivesOptions other :
        List.of(
            calls.withChecks(true),
            calls.withTransport(Transport.ETHERNET),
            calls.withTag(7),
            calls.withMaxBlocks(1),
            calls.withCopyEngines(true),
            calls.withReproducible(true),
            calls.withTuning(Path.of("/nowhere")),
            calls.withAlgorithm(Collective.ALL_REDUCE, "ring"))) {
      assertThat(options.withCollectives(other).settings()).isNotEqualTo(settings);
    }
    assertThat(options.withDevice(DeviceChoice.cuda(3)).settings())
        .isEqualTo(options.withDevice(DeviceChoice.CUDA).settings())
        .isNotEqualTo(settings);
    assertThat(
            options
                .withName("chat")
                .withLeastRanks(1)
                .withTimeout(Duration.ofSeconds(7))
                .withCollectives(calls.withChecksums(true).withThreads(3).withAbortOnCancel(true))
                .settings())
        .isEqualTo(settings);
  }

  @Test
  void shouldKeepTheTagAndTheSetUpLimitThatTheCallerSet() {
    CollectivesOptions given =
        CollectivesOptions.DEFAULT.withTag(7).withSetupTimeout(Duration.ofSeconds(3));
    assertThat(from(Map.of()).withCollectives(given).collectivesWithTag(99)).isEqualTo(given);
    CollectivesOptions own = from(Map.of("FLUXCCL_JOIN_TIMEOUT", "9")).collectivesWithTag(99);
    assertThat(own.tag()).isEqualTo(99);
    assertThat(own.setupTimeout()).hasValue(Duration.ofSeconds(9));
  }
}
