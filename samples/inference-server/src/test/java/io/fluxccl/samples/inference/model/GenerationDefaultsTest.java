// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GenerationDefaultsTest {
  @TempDir private Path folder;

  private GenerationDefaults read(String json) throws IOException {
    Files.writeString(folder.resolve("generation_config.json"), json);
    return GenerationDefaults.read(folder);
  }

  @Test
  void shouldReadTheDefaultsOfTheFolder() throws IOException {
    assertThat(GenerationDefaults.read(folder)).isEqualTo(GenerationDefaults.NONE);
    assertThat(read("{\"eos_token_id\": [1, 350]}")).isEqualTo(GenerationDefaults.NONE);
    assertThat(read("{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20}"))
        .isEqualTo(new GenerationDefaults(0.6, 0.9, 20, List.of()));
  }

  @Test
  void shouldNameKeysWithoutEffect() throws IOException {
    String json =
        "{\"repetition_penalty\": 1.05, \"min_p\": 0, \"typical_p\": 1.0, \"suppress_tokens\": [],"
            + " \"max_new_tokens\": 9, \"top_k\": null}";
    assertThat(read(json).unused()).containsExactly("repetition_penalty=1.05", "max_new_tokens=9");
  }

  @Test
  void shouldRefuseValuesOutOfRange() {
    for (String value :
        List.of(
            "temperature\": -1",
            "temperature\": \"1",
            "top_p\": 0",
            "top_p\": 2",
            "top_k\": 1.5")) {
      String json = "{\"" + value + (value.contains("\"1") ? "\"}" : "}");
      assertThatThrownBy(() -> read(json))
          .as(json)
          .isInstanceOf(IOException.class)
          .hasMessageMatching(".*generation_config.json: (temperature|top_.)=.*; it must be .*");
    }
  }
}
