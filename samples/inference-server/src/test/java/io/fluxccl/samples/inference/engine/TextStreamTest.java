// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.model.ModelFolder;
import io.fluxccl.samples.inference.model.Tokenizer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TextStreamTest {
  @TempDir private Path path;

  /** Returns the pieces of the text after the first tokens of a text, which are the prompt. */
  private List<TextPiece> pieces(Tokenizer tokenizer, String text, int promptTokens) {
    int[] tokens = tokenizer.encode(text);
    int[] prompt = Arrays.copyOf(tokens, promptTokens);
    TextStream stream = new TextStream(tokenizer, prompt, List.of(), "");
    for (int i = promptTokens; i < tokens.length; i++) {
      stream.add(tokens[i], i == tokens.length - 1 ? End.LENGTH : End.NOT_YET);
    }
    return stream.pieces().collectList().block();
  }

  private static String joined(List<TextPiece> pieces) {
    return pieces.stream().map(TextPiece::text).reduce("", String::concat);
  }

  @Test
  void shouldKeepTheBlankBeforeTheFirstTokenOfAnAnswer() throws IOException {
    ModelFolder.copyTo(path).withStrippingDecoder();
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      List<TextPiece> pieces = pieces(tokenizer, "It is a pity that", 3);
      assertThat(pieces.get(0).text()).isEqualTo(" a");
      assertThat(joined(pieces)).isEqualTo(" a pity that");
      TextPiece last = pieces.get(pieces.size() - 1);
      assertThat(last.promptTokens()).isEqualTo(3);
      assertThat(last.tokens()).isEqualTo(tokenizer.encode("It is a pity that").length - 3);
      assertThat(joined(pieces(tokenizer, "It is a pity that", 1))).isEqualTo("It is a pity that");
    }
  }

  @Test
  void shouldContinueAPromptThatEndsWithHalfACharacter() throws IOException {
    ModelFolder.copyTo(path);
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      int[] tokens = tokenizer.encode("\u4f60 a");
      assertThat(tokens.length).as("a character of several tokens").isGreaterThan(4);
      assertThat(joined(pieces(tokenizer, "\u4f60 a", 2))).isEqualTo("\u4f60 a");
    }
  }

  private static List<TextPiece> pieces(Tokenizer tokenizer, int... tokens) {
    TextStream stream = new TextStream(tokenizer, new int[] {0}, List.of(), "");
    for (int i = 0; i < tokens.length; i++) {
      stream.add(tokens[i], i == tokens.length - 1 ? End.LENGTH : End.NOT_YET);
    }
    return stream.pieces().collectList().block();
  }

  @Test
  void shouldSendBytesThatAreNoCharacterBeforeTheEnd() throws IOException {
    ModelFolder.copyTo(path);
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      int[] tokens = new int[40];
      Arrays.fill(tokens, tokenizer.encode("\ud83d\ude00")[1]);
      List<TextPiece> pieces = pieces(tokenizer, tokens);
      assertThat(joined(pieces)).isEqualTo("\ufffd".repeat(40));
      assertThat(pieces)
          .filteredOn(piece -> !piece.text().isEmpty())
          .extracting(TextPiece::tokens)
          .containsExactly(16, 32, 40);
    }
  }

  @Test
  void shouldKeepTheBlankAfterManyTokensWithoutText() throws IOException {
    ModelFolder.copyTo(path).withStrippingDecoder();
    try (Tokenizer tokenizer = Tokenizer.read(path)) {
      int[] words = tokenizer.encode("It is");
      int[] tokens = new int[words.length + 39];
      Arrays.fill(tokens, 1);
      System.arraycopy(words, 1, tokens, 0, words.length - 2);
      tokens[tokens.length - 1] = words[words.length - 1];
      List<TextPiece> pieces = pieces(tokenizer, tokens);
      assertThat(joined(pieces)).isEqualTo("It is");
      assertThat(pieces.get(pieces.size() - 1).tokens()).isEqualTo(tokens.length);
    }
  }
}
