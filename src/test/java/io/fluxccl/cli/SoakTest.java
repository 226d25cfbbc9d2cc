// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Tag("multiprocess")
@Timeout(300)
class SoakTest {
  @TempDir private Path folder;

  private int soak(String... options) throws Exception {
    List<String> command = PerfCommand.javaCommand(BenchMain.class.getName());
    command.addAll(List.of("soak", "--device", "host", "--max-bytes", "262144"));
    command.addAll(List.of("--json", folder.resolve("soak.json").toString()));
    command.addAll(List.of(options));
    Process process =
        new ProcessBuilder(command)
            .redirectOutput(folder.resolve("out").toFile())
            .redirectError(folder.resolve("err").toFile())
            .start();
    try {
      assertThat(process.waitFor(200, TimeUnit.SECONDS)).isTrue();
      return process.exitValue();
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  private String err() throws IOException {
    return Files.readString(folder.resolve("err"));
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
    assertThat(soak("--ranks", "2", "--seconds", "3")).as(err()).isZero();
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
  void shouldRefuseToKillRanksWithoutRestart() throws Exception {
    assertThat(soak("--ranks", "2", "--kill-every", "1")).isEqualTo(ExitCode.USAGE);
    assertThat(err()).contains("needs --restart");
  }
}
