// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.samples.inference.engine.InferenceEngine;
import io.fluxccl.samples.inference.engine.ModelOptions;
import io.fluxccl.samples.inference.model.ModelFolder;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Faults of a model's folder that {@code run} reports before it starts ranks. */
class FolderFaultsTest {
  private static final String POINTER =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";

  @TempDir private Path path;
  private ModelFolder folder;

  @BeforeEach
  void copyTheModel() throws IOException {
    folder = ModelFolder.copyTo(path).withWeights();
  }

  private void assertRefused(String file, String... words) {
    StringWriter err = new StringWriter();
    int status =
        InferenceServer.commandLine()
            .setErr(new PrintWriter(err, true))
            .execute("--model", path.toString(), "--port", "0", "--check-ranks", "1");
    assertThat(status).isEqualTo(1);
    assertThat(err.toString().lines()).hasSize(1);
    assertThat(err.toString()).contains("inference-server: " + path.resolve(file)).contains(words);
  }

  @Test
  void shouldNameTheRemedyWithoutATokenizer() throws IOException {
    Files.delete(path.resolve("tokenizer.json"));
    assertRefused("tokenizer.json", "is missing", "save_pretrained");
  }

  @Test
  void shouldRefuseABrokenTokenizer() throws IOException {
    folder.with("tokenizer.json", "{\"version\": \"1.0\", \"model\": {\"ty");
    assertRefused("tokenizer.json", "is no JSON", "download it again");
    folder.with("tokenizer.json", "{\"version\": \"1.0\", \"model\": {\"type\": \"Magic\"}}");
    assertRefused("tokenizer.json", "is no tokenizer that this server can read");
  }

  @Test
  void shouldNamePointersAndDeadLinks() throws IOException {
    for (String file :
        new String[] {
          "generation_config.json",
          "chat_template.jinja",
          "tokenizer_config.json",
          "tokenizer.json",
          "config.json"
        }) {
      folder.with(file, POINTER);
      assertRefused(file, "git lfs pull");
      folder.withDeadLink(file);
      assertRefused(file, "links to a missing file");
    }
  }

  @Test
  void shouldRefuseAChatTemplateThatCannotBeRendered() throws IOException {
    folder.with("chat_template.jinja", "{% for m in messages %}\n{{ m.content | shuffle }}");
    assertRefused("chat_template.jinja", "line 2", "the filter 'shuffle'");
  }

  @Test
  void shouldRefuseDefaultsOutOfRange() throws IOException {
    folder.with("generation_config.json", "{\"temperature\": -1}");
    assertRefused("generation_config.json", "temperature=-1");
  }

  @Test
  void shouldListMissingPartsOfTheFolder() throws IOException {
    folder.tokenizer(json -> json.putNull("post_processor"));
    folder.with("generation_config.json", "{\"repetition_penalty\": 1.1, \"top_k\": 5}");
    try (InferenceEngine engine = new InferenceEngine(path, new ModelOptions(8, 4, 64, 4))) {
      assertThat(engine.defaults().topK()).isEqualTo(5);
      assertThat(engine.remarks())
          .containsExactly(
              "tokenizer.json adds no begin token to prompts",
              "of generation_config.json, this server does not use [repetition_penalty=1.1]");
    }
  }
}
