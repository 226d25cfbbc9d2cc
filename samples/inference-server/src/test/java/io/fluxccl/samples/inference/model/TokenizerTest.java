// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TokenizerTest {
  @TempDir private Path path;
  private ModelFolder folder;

  @BeforeEach
  void copyTheModel() throws IOException {
    folder = ModelFolder.copyTo(path).withTokens("<|im|>", "<|im|>x");
  }

  private int[] tokens(String text) throws IOException {
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      return tokenizer.encode(text);
    }
  }

  @Test
  void shouldEncodeSpecialTokensOfPromptsAndAddTheBeginToken() throws IOException {
    assertThat(tokens("<|im|>x<|im|><|end_of_text|>")).containsExactly(0, 2049, 2048, 1);
  }

  @Test
  void shouldAddNoBeginTokenWithoutAPostProcessor() throws IOException {
    int[] with = tokens("It is");
    folder.tokenizer(json -> json.putNull("post_processor"));
    assertThat(tokens("It is")).hasSize(2).isEqualTo(new int[] {with[1], with[2]});
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      assertThat(tokenizer.addsTokens()).isFalse();
    }
  }

  @Test
  void shouldNotFindSpecialTokensInAVocabularyOfWords() throws IOException {
    folder.tokenizer(
        json -> {
          ObjectNode model = json.putObject("model").put("type", "Unigram").put("unk_id", 1);
          ArrayNode vocabulary = model.putArray("vocab");
          for (String piece : List.of("<s>", "<unk>", "<", "s", ">", "\u0120")) {
            vocabulary.addArray().add(piece).add(piece.length() > 1 ? 0 : -2);
          }
          ArrayNode added = json.putArray("added_tokens");
          added.addObject().put("id", 0).put("content", "<s>").put("special", true);
          for (String flag : List.of("single_word", "lstrip", "rstrip", "normalized")) {
            ((ObjectNode) added.get(0)).put(flag, false);
          }
          json.putNull("post_processor");
        });
    assertThat(tokens("<s>s")).containsExactly(0, 3);
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      assertThat(tokenizer.encode(tokenizer.asChat("<s>" + tokenizer.hide("<s>"))))
          .containsExactly(2, 3, 4, 0);
    }
  }

  @Test
  void shouldRefuseUseAfterClose() throws IOException {
    Tokenizer tokenizer = Tokenizer.read(path);
    tokenizer.close();
    assertThatThrownBy(() -> tokenizer.encode("a")).isInstanceOf(IllegalStateException.class);
  }
}
