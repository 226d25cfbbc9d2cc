// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
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

  /** The numbers of the result by name. */
  private Map<String, Long> result() throws IOException {
    Map<String, Long> numbers = new HashMap<>();
    try (JsonParser parser = new JsonFactory().createParser(folder.resolve("soak.json").toFile())) {
      for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
        if (token == JsonToken.VALUE_NUMBER_INT) {
          numbers.put(parser.currentName(), parser.getLongValue());
        }
      }
    }
    return numbers;
  }

  @Test
  void shouldCheckRandomCollectives() throws Exception {
    Cli soak = soak("--ranks", "2", "--seconds", "3");
    assertThat(soak.code()).as(soak.err()).isZero();
    assertThat(result())
        .containsEntry("wrong", 0L)
        .containsEntry("generations", 1L)
        .containsEntry("kills", 0L)
        .containsEntry("double_kills", 0L)
        .containsEntry("segments", 0L);
    assertThat(result()).containsKeys("heap_kib", "rss_kib");
    assertThat(result().get("collectives")).isGreaterThan(8);
    assertThat(result().get("cancelled")).isPositive();
  }

  @Test
  void shouldRefuseToKillRanksWithoutRestart() {
    Cli soak = soak("--ranks", "2", "--kill-every", "1");
    assertThat(soak.code()).isEqualTo(ExitCode.USAGE);
    assertThat(soak.err()).contains("needs --restart");
  }
}
