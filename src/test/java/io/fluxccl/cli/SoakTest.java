// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Tag("multiprocess")
@Timeout(300)
class SoakTest {
  @TempDir private Path folder;

  private Cli soak(String... options) {
    return Cli.run(
        Cli.process(BenchMain.class, "soak", "--device", "host", "--max-bytes", "262144")
            .arguments("--json", folder.resolve("soak.json").toString())
            .arguments(options));
  }

  @Test
  void shouldCheckRandomCollectives() throws Exception {
    Cli soak = soak("--ranks", "2", "--seconds", "3");
    assertThat(soak.code()).as(soak.err()).isZero();
    assertThat(Files.readString(folder.resolve("soak.json")))
        .contains("\"wrong\":0,\"generations\":1,\"kills\":0,\"double_kills\":0,")
        .contains("\"segments\":0", "\"heap_kib\":", "\"rss_kib\":")
        .containsPattern("\"collectives\":(9|[1-9]\\d)")
        .containsPattern("\"cancelled\":[1-9]");
  }

  @Test
  void shouldRefuseToKillRanksWithoutRestart() {
    Cli soak = soak("--ranks", "2", "--kill-every", "1");
    assertThat(soak.code()).isEqualTo(ExitCode.USAGE);
    assertThat(soak.err()).contains("needs --restart");
  }
}
