// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.tls;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.settings.Settings;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

@Tag("jdk")
class TlsTest {
  @TempDir Path folder;

  @Test
  void shouldBeOffUnlessWanted() {
    assertThat(Tls.from(Settings.of(Map.of()))).isEmpty();
    assertThat(Tls.from(Settings.of(Map.of("FLUXCCL_TLS", "0")))).isEmpty();
    assertThat(Tls.from(Settings.of(Map.of("FLUXCCL_TLS", " ")))).isEmpty();
    assertThat(Tls.from(Settings.of(Map.of("FLUXCCL_TLS", "1")))).containsSame(Tls.selfSigned());
  }

  @Test
  void shouldNameTheVariableThatIsWrong() throws Exception {
    assertRefused(() -> Tls.from(Settings.of(Map.of("FLUXCCL_TLS", "yes"))), "FLUXCCL_TLS=yes");
    assertRefused(() -> Tls.from(Settings.of(Map.of("FLUXCCL_TLS_KEY", "/x"))), "FLUXCCL_TLS=1");
    assertRefused(
        () -> Tls.from(Settings.of(Map.of("FLUXCCL_TLS", "1", "FLUXCCL_TLS_KEY", "/x"))),
        "FLUXCCL_TLS_CERTIFICATE");
    Path none = folder.resolve("none");
    assertRefused(() -> Tls.of(none, none, none), none.toString());
    Path empty = Files.createFile(folder.resolve("empty"));
    assertRefused(() -> Tls.of(empty, empty, empty), "PRIVATE KEY");
  }

  @Test
  void shouldReadCertificatesOfTheUser() throws Exception {
    Certificates made = new Certificates(folder);
    assertThat(made.of("ec", "EC").fingerprint())
        .hasSize(Tls.FINGERPRINT_LENGTH)
        .isNotEqualTo(made.of("rsa", "RSA").fingerprint());
    assertRefused(
        () -> Tls.of(folder.resolve("ec.crt"), folder.resolve("rsa.key"), made.authority()));
  }
}
